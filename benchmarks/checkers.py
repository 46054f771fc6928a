"""How many wrong backwards does each way of checking gradients let through?

Thirty-five wrong backwards of Transformer layers (tests/checking/wrong_backwards.py) and seven right ones are put
before the recipes in common use, each rebuilt here in a few lines of NumPy, and before `tnp.gradcheck`. A recipe
should let none of the wrong ones through (but one that no check at gamma = 1 can see) and should never reject a right
one.

    python benchmarks/checkers.py [--seeds 20] [--json FILE]
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "checking")]

from wrong_backwards import CASES  # noqa: E402

from transformer_np.checking import gradcheck  # noqa: E402


def floats(inputs):
    return [i for i, x in enumerate(inputs) if x.dtype.kind == "f"]


def value(forward, inputs, dy):
    return float((forward(*inputs)[0] * dy).sum())


def slope(forward, inputs, dy, directions, h):
    """Central difference of <dy, f> along directions (input number -> direction)."""
    moved = [[x + s * h * directions[i] if i in directions else x for i, x in enumerate(inputs)] for s in (1, -1)]
    return (value(forward, moved[0], dy) - value(forward, moved[1], dy)) / (2 * h)


def analytic(case, backward, inputs, dy):
    out, cache = case.forward(*inputs)
    gradients = backward(np.broadcast_to(dy, np.shape(out)), cache)
    return gradients if isinstance(gradients, tuple) else (gradients,)


def unit(x, index):
    e = np.zeros_like(x)
    e[index] = 1
    return e


def all_ones(case, backward, inputs, rng):
    """Loss = sum of the outputs, every element, h 1e-4, summed error below 1e-6."""
    dy = np.ones_like(case.forward(*inputs)[0])
    g = analytic(case, backward, inputs, dy)
    error = 0.0
    for i in floats(inputs):
        n = np.array(
            [slope(case.forward, inputs, dy, {i: unit(inputs[i], j)}, 1e-4) for j in np.ndindex(inputs[i].shape)]
        )
        error += np.linalg.norm(g[i].ravel() - n)
    return error < 1e-6


def one_element(case, backward, inputs, rng):
    """Loss = sum of the outputs, one random element an input, tolerance 1e-2."""
    dy = np.ones_like(case.forward(*inputs)[0])
    g = analytic(case, backward, inputs, dy)
    for i in floats(inputs):
        j = tuple(int(rng.integers(n)) for n in inputs[i].shape)
        n = slope(case.forward, inputs, dy, {i: unit(inputs[i], j)}, 1e-6)
        if abs(g[i][j] - n) > 1e-2 + 1e-2 * abs(n):
            return False
    return True


def one_direction(case, backward, inputs, rng):
    """Random upstream gradient, one normal direction an input, 1e-6."""
    dy = rng.normal(size=np.shape(case.forward(*inputs)[0]))
    g = analytic(case, backward, inputs, dy)
    for i in floats(inputs):
        u = rng.normal(size=inputs[i].shape)
        a, n = float((g[i] * u).sum()), slope(case.forward, inputs, dy, {i: u}, 5e-7)
        if abs(a - n) > 1e-6 and abs(a - n) > 1e-6 * max(abs(a), abs(n)):
            return False
    return True


def joint_direction(case, backward, inputs, rng):
    """Random upstream gradient, one direction through all inputs at once, atol 1e-5, rtol 1e-4."""
    dy = rng.normal(size=np.shape(case.forward(*inputs)[0]))
    g = analytic(case, backward, inputs, dy)
    us = {i: rng.normal(size=inputs[i].shape) for i in floats(inputs)}
    norm = np.sqrt(sum((u * u).sum() for u in us.values()))
    us = {i: u / norm for i, u in us.items()}
    a, n = sum(float((g[i] * u).sum()) for i, u in us.items()), slope(case.forward, inputs, dy, us, 1e-3)
    return abs(a - n) <= 1e-5 + 1e-4 * abs(n)


def non_negative(case, backward, inputs, rng):
    """Upstream gradient and directions uniform in [0, 1), tolerances scaled by their sums (torch, fast mode)."""
    dy = rng.uniform(size=np.shape(case.forward(*inputs)[0]))
    dy = dy / np.linalg.norm(dy)
    g = analytic(case, backward, inputs, dy)
    for i in floats(inputs):
        u = rng.uniform(size=inputs[i].shape)
        u /= np.linalg.norm(u)
        a, n = float((g[i] * u).sum()), slope(case.forward, inputs, dy, {i: u}, 1e-6)
        if abs(a - n) > 1e-5 * u.sum() * dy.sum() + 1e-3 * abs(n):
            return False
    return True


def full_jacobian(case, backward, inputs, rng):
    """Every output with respect to every element, h 1e-6, atol 1e-5, rtol 1e-3 (torch, slow mode)."""
    out = np.asarray(case.forward(*inputs)[0])
    numeric = {}
    for i in floats(inputs):
        numeric[i] = [
            (
                np.asarray(case.forward(*_moved(inputs, i, j, 1e-6))[0])
                - np.asarray(case.forward(*_moved(inputs, i, j, -1e-6))[0])
            )
            / 2e-6
            for j in np.ndindex(inputs[i].shape)
        ]
    for o in np.ndindex(out.shape):
        g = analytic(case, backward, inputs, unit(out, o))
        for i in floats(inputs):
            n = np.array([column[o] for column in numeric[i]])
            if (np.abs(g[i].ravel() - n) > 1e-5 + 1e-3 * np.abs(n)).any():
                return False
    return True


def _moved(inputs, i, j, h):
    return [x + h * unit(x, j) if k == i else x for k, x in enumerate(inputs)]


def fixed_tolerance(case, backward, inputs, rng):
    """Random upstream gradient, every element, h 1e-5, relative error below 1e-7."""
    dy = rng.normal(size=np.shape(case.forward(*inputs)[0]))
    g = analytic(case, backward, inputs, dy)
    for i in floats(inputs):
        for j in np.ndindex(inputs[i].shape):
            n = slope(case.forward, inputs, dy, {i: unit(inputs[i], j)}, 1e-5)
            if abs(g[i][j] - n) > 1e-7 * max(abs(g[i][j]), abs(n), 1e-8):
                return False
    return True


def ours(case, backward, inputs, rng, **options):
    """tnp.gradcheck as it comes."""
    return gradcheck((case.forward, backward), *inputs, seed=int(rng.integers(2**31)), explain=False, **options).ok


RECIPES = {
    "all-ones upstream, every element": all_ones,
    "all-ones upstream, one element": one_element,
    "one direction an input": one_direction,
    "one joint direction": joint_direction,
    "non-negative directions (torch fast)": non_negative,
    "full Jacobian (torch slow)": full_jacobian,
    "every element, fixed 1e-7": fixed_tolerance,
    "tnp.gradcheck": ours,
}


def measure(recipe, seeds):
    """Return (mean number of wrong backwards let through, who they are, right ones rejected, seconds)."""
    escaped, alarms, began = Counter(), Counter(), time.perf_counter()
    for seed in range(seeds):
        for case in CASES:
            rng = np.random.default_rng((seed, len(case.name)))
            inputs = case.draw(rng)
            if not recipe(case, case.backward, inputs, rng):
                alarms[case.name] += 1
            for name, wrong in case.wrong.items():
                if recipe(case, wrong, inputs, rng):
                    escaped[f"{case.name}: {name}"] += 1
    return escaped, alarms, time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--json", metavar="FILE", help="also write the figures here")
    args = parser.parse_args()
    total = sum(len(case.wrong) for case in CASES)
    rows = []
    print(f"| recipe | escapes of {total}, mean of {args.seeds} seeds | right ones rejected | s | often let through |")
    print("|---|---|---|---|---|")
    for name, recipe in RECIPES.items():
        escaped, alarms, seconds = measure(recipe, args.seeds)
        mean = sum(escaped.values()) / args.seeds
        often = ", ".join(f"{k} {100 * n / args.seeds:.0f} %" for k, n in escaped.most_common(7))
        rows.append(
            {
                "recipe": name,
                "escapes": mean,
                "of": total,
                "seeds": args.seeds,
                "false_alarms": sum(alarms.values()),
                "seconds": seconds,
                "escaped": dict(escaped),
                "alarms": dict(alarms),
            }
        )
        print(
            f"| {name} | {mean:.2f} | {sum(alarms.values())} of {args.seeds * len(CASES)} | {seconds:.1f} | {often} |",
            flush=True,
        )
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
