"""How long does a check take? `tnp.gradcheck` beside `torch.autograd.gradcheck` in slow mode, on equal functions.

Both check the same function of the same float64 arrays, alternating in one run, on one thread; medians are printed.
Ours is given twice: comparing numbers alone, as torch does, and as it comes, with contracts and a second point.

    python benchmarks/gradcheck_speed.py [--repeat 9] [--json FILE]
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import transformer_np as tnp
from transformer_np.checking import gradcheck


def x_of(*shape):
    return np.random.default_rng(0).standard_normal(shape)


def leaf(array):
    return torch.tensor(array, requires_grad=True)


def linear(b, d):
    layer, x = tnp.layers.Linear(d, d + 1, seed=0, dtype="float64"), x_of(b, d)
    w, bias = layer.weight.data.copy(), layer.bias.data.copy()
    return layer, (x,), lambda x, w, b: x @ w + b, (leaf(x), leaf(w), leaf(bias))


def layer_norm(b, d):
    layer, x = tnp.layers.LayerNorm(d, dtype="float64"), x_of(b, d)
    return layer, (x,), lambda x, g, b: F.layer_norm(x, (d,), g, b), (leaf(x), leaf(np.ones(d)), leaf(np.zeros(d)))


def softmax(b, d):
    x = x_of(b, d)
    return tnp.layers.Softmax(), (x,), lambda x: torch.softmax(x, -1), (leaf(x),)


def attention(b, d):
    q, k, v = (x_of(2, b, d) + i for i in range(3))
    function = torch.nn.functional.scaled_dot_product_attention
    return tnp.layers.ScaledDotProductAttention(), (q, k, v), function, (leaf(q), leaf(k), leaf(v))


CASES = {"Linear": linear, "LayerNorm": layer_norm, "Softmax": softmax, "attention": attention}


def seconds(function):
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--json", metavar="FILE", help="also write the figures here")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    print("| function | shape | ours, numbers (ms) | ours, everything (ms) | torch slow (ms) | torch / ours, numbers |")
    print("|---|---|---|---|---|---|")
    for name, case in CASES.items():
        for shape in ((2, 4), (4, 8), (8, 16), (16, 32)):
            layer, inputs, function, tensors = case(*shape)
            ways = [
                lambda a=layer, b=inputs: gradcheck(a, *b, contracts=False, points=1, directions=1),
                lambda a=layer, b=inputs: gradcheck(a, *b),
                lambda a=function, b=tensors: torch.autograd.gradcheck(a, b),
            ]
            times = [[seconds(way) for way in ways] for _ in range(args.repeat + 1)][1:]
            plain, full, other = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
            rows.append(
                {"function": name, "shape": shape, "ours_ms": plain, "ours_everything_ms": full, "torch_ms": other}
            )
            print(f"| {name} | {shape} | {plain:.1f} | {full:.1f} | {other:.1f} | {other / plain:.1f} |", flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
