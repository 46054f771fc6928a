"""Encoder layers and whole training steps on a GPU, beside PyTorch eager: float32, TF32, float16 and bfloat16.

The first table is 6 encoder layers, forward and backward, with this package's plain CuPy code and with its fused
kernels; the second a training step of the Transformer with dropout 0.1, label smoothing 0.1, clipping and Adam, in
mixed precision where the precision is half (PyTorch: autocast, and a GradScaler for float16). Sides take turns in one
process, since they share the GPU; medians count. Ratios are time here over time there: below 1 is faster.

    python benchmarks/gpu_step.py [--repeats 20] [--precisions float32 tf32 bfloat16 float16] [--json FILE]

All of it takes some minutes, of which CuPy needs most to compile its kernels. Tables come precision by precision, and
the file is written anew after each, so that nothing is lost where the time runs out.
"""

import argparse
import contextlib
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import transformer_np as tnp  # noqa: E402
from transformer_np import backend, kernels  # noqa: E402
from transformer_np.benchmark import describe_machine, table  # noqa: E402
from transformer_np.layers import Encoder  # noqa: E402

N_LAYERS = 6
LAYER_SIZES = [(32, 32, 256, 8, 1024), (64, 64, 512, 8, 2048), (256, 64, 512, 8, 2048), (16, 512, 512, 8, 2048)]
STEP_SIZES = [
    (64, 12, 64, 4, 2, 256, 300),
    (32, 16, 256, 8, 3, 512, 6000),
    (128, 14, 256, 4, 3, 1024, 10000),
    (16, 32, 512, 8, 6, 2048, 8000),
]
PRECISIONS = ("float32", "tf32", "bfloat16", "float16")
HALF = ("float16", "bfloat16")


def seconds(sides, repeats, synchronise):
    """Return the median seconds of each side; they take turns, and each is waited for."""
    times = [[] for _ in sides]
    for i in range(repeats + 3):  # the first three compile and fill the memory pools
        for side, kept in zip(sides, times, strict=True):
            synchronise()
            start = time.perf_counter()
            side()
            synchronise()
            if i >= 3:
                kept.append(time.perf_counter() - start)
    return [statistics.median(kept) for kept in times]


def our_layers(size, precision):
    """Forward and backward of a stack of encoder layers of this package: a function, and the same in plain CuPy."""
    import cupy

    batch, length, d, heads, d_ff = size
    dtype = precision if precision in HALF else "float32"
    layers = Encoder(N_LAYERS, d, heads, d_ff, 0.0, seed=0).to("cupy").astype(dtype)
    x, dy = (cupy.asarray(np.random.default_rng(i).standard_normal((batch, length, d))) for i in range(2))
    x, dy = x.astype(layers.dtype), dy.astype(layers.dtype)

    def fused():
        layers.zero_grad()
        layers.forward(x)
        layers.backward(dy)

    def plain():
        with kernels.plain():
            fused()

    return fused, plain


def torch_layers(size, precision):
    """The same by PyTorch."""
    import torch

    batch, length, d, heads, d_ff = size
    dtype = getattr(torch, precision) if precision in HALF else torch.float32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    layer = torch.nn.TransformerEncoderLayer(d, heads, d_ff, dropout=0.0, batch_first=True)
    layers = torch.nn.TransformerEncoder(layer, N_LAYERS, enable_nested_tensor=False).to("cuda", dtype).train()
    x, dy = (torch.randn(batch, length, d, device="cuda", dtype=dtype) for _ in range(2))
    x.requires_grad_()

    def run():
        layers.zero_grad(set_to_none=True)
        layers(x).backward(dy)

    return run


def ids_of(size):
    """Source, target and what to predict, all real tokens."""
    batch, length, *_, vocab_size = size
    return np.random.default_rng(0).integers(1, vocab_size, (3, batch, length))


def our_step(size, precision):
    """One training step of this package, in plain CuPy where `plain` is asked for."""
    import cupy

    _, length, d, heads, n, d_ff, v = size
    model = tnp.Transformer(v, v, d, heads, n, n, d_ff, 0.1, length).to("cupy")
    loss_fn, adam = tnp.CrossEntropy(label_smoothing=0.1, ignore_index=0), tnp.Adam(model.parameters(), lr=1e-4)
    step = tnp.TrainStep(model, loss_fn, adam, clip=1.0, precision=precision if precision in HALF else None)
    batch = [cupy.asarray(ids) for ids in ids_of(size)]

    def fused():
        step(*batch)

    def plain():
        with kernels.plain():
            step(*batch)

    return fused, plain


def torch_transformer(length, d, heads, n, d_ff, v):
    """PyTorch's Transformer between embeddings and an output layer: src (B, L), tgt (B, L) -> logits (B, L, V)."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.src_embedding, self.tgt_embedding = (torch.nn.Embedding(v, d) for _ in range(2))
            self.transformer = torch.nn.Transformer(d, heads, n, n, d_ff, dropout=0.1, batch_first=True)
            self.output = torch.nn.Linear(d, v)
            mask = torch.nn.Transformer.generate_square_subsequent_mask(length)
            self.register_buffer("mask", mask, persistent=False)

        def forward(self, src, tgt):
            x, y = self.src_embedding(src), self.tgt_embedding(tgt)
            return self.output(self.transformer(x, y, tgt_mask=self.mask, tgt_is_causal=True))

    return Model()


def torch_step(size, precision):
    """The same by `torch.nn.Transformer`, with fused Adam."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    src, tgt, targets = (torch.tensor(ids, device="cuda") for ids in ids_of(size))
    model = torch_transformer(*size[1:]).to("cuda")
    loss_fn = torch.nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=0)
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "float16")
    half = precision in HALF
    cast = torch.autocast("cuda", getattr(torch, precision)) if half else contextlib.nullcontext()

    def run():
        adam.zero_grad(set_to_none=True)
        with cast:
            loss = loss_fn(model(src, tgt).flatten(0, 1), targets.flatten())
        scaler.scale(loss).backward()
        scaler.unscale_(adam)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(adam)
        scaler.update()
        return loss.item()

    return run


def rows_of(sizes, ours, theirs, precision, repeats):
    """Return for each size its milliseconds, plain and fused, and PyTorch's where that is installed."""
    import cupy

    def synchronise():
        cupy.cuda.Device().synchronize()

    rows = []
    for size in sizes:
        fused, plain = ours(size, precision)
        sides = [plain, fused] + ([theirs(size, precision)] if theirs else [])
        times = seconds(sides, repeats, synchronise)
        row = {"precision": precision, "size": size, "plain_ms": 1e3 * times[0], "fused_ms": 1e3 * times[1]}
        if theirs:
            row |= {"torch_ms": 1e3 * times[2], "ratio": times[1] / times[2]}
        rows.append(row)
        cupy.get_default_memory_pool().free_all_blocks()
    return rows


def torch_on_gpu():
    """Whether PyTorch is here and sees the GPU."""
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def card():
    """The GPU's name, and the CUDA that CuPy was built with."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return {"card": properties["name"].decode(), "cuda": cupy.cuda.runtime.runtimeGetVersion()}


def show(title, rows):
    """Print a table of rows."""
    head = ["precision", "size", "CuPy plain ms", "fused ms", "PyTorch ms", "ratio"]
    lines = [
        [
            row["precision"],
            " ".join(map(str, row["size"])),
            f"{row['plain_ms']:.1f}",
            f"{row['fused_ms']:.1f}",
            f"{row['torch_ms']:.1f}" if "torch_ms" in row else "",
            f"{row['ratio']:.2f}" if "ratio" in row else "",
        ]
        for row in rows
    ]
    print(f"{title}\n{table(head, lines)}\n", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    args = parser.parse_args()
    if not backend.gpu_available():
        print("No GPU that CuPy can use here, so there is nothing to measure: see docs/gpu.md for how to install it.")
        return
    with_torch = torch_on_gpu()
    if not with_torch:
        print("PyTorch is not installed, or sees no GPU: only this package is measured.")
    found = {"machine": describe_machine() | card(), "repeats": args.repeats, "layers": [], "steps": []}
    print(f"{found['machine']['card']}, {found['machine']['date']}\n", flush=True)
    tables = {
        "layers": (
            LAYER_SIZES,
            our_layers,
            torch_layers,
            f"{N_LAYERS} encoder layers; sizes are B L d_model heads d_ff",
        ),
        "steps": (STEP_SIZES, our_step, torch_step, "A training step; sizes are B L d_model heads layers d_ff V"),
    }
    for precision in args.precisions:
        backend.allow_tf32(precision == "tf32")
        for name, (sizes, ours, theirs, title) in tables.items():
            rows = rows_of(sizes, ours, theirs if with_torch else None, precision, args.repeats)
            show(title, rows)
            found[name] += rows
        if args.json:
            args.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    backend.allow_tf32(False)


if __name__ == "__main__":
    main()
