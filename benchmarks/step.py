"""A whole training step of the Transformer, beside PyTorch's: time, memory, and share of the machine's GEMM rate.

Dropout 0.1, label smoothing 0.1, Adam, float32, two threads each; PyTorch eager, with whichever of its fused and
foreach Adam is faster. Each side has a process of its own, the two take turns, medians count.

    python benchmarks/step.py [--sizes dates small multi30k base] [--threads 2] [--repeats 11] [--json FILE]
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from transformer_np import benchmark  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", choices=tuple(benchmark.SIZES), default=list(benchmark.SIZES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--json", metavar="FILE", help="also write the figures here")
    args = parser.parse_args()
    machine, rows = benchmark.describe_machine(), []
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    print(f"{args.threads} threads, medians of {args.repeats}", flush=True)
    for name in args.sizes:
        size = benchmark.SIZES[name]
        row = benchmark.step_row(name, size, args.threads, args.repeats, benchmark.torch_installed())
        rows.append(row)
        print(benchmark.step_table([row]).splitlines()[-1], file=sys.stderr, flush=True)
    print(benchmark.step_table(rows))
    for row in rows:
        with_torch = f", PyTorch {1e3 * row['torch_forward_backward']:.1f} ms" if "ratio" in row else ""
        gemm = f"; GEMM {row['gemm_rate'] / 1e9:.0f} GFLOP/s"
        print(f"{row['name']}: forward and backward alone {1e3 * row['forward_backward']:.1f} ms{with_torch}{gemm}")
    summary = {}
    if all("ratio" in row for row in rows):
        ratios = [row["ratio"] for row in rows]
        summary = {"geometric_mean": benchmark.geometric_mean(ratios), "worst": max(ratios)}
        print(f"time ratio to PyTorch: geometric mean {summary['geometric_mean']:.3f}, worst {summary['worst']:.3f}")
    if args.json:
        result = {"machine": machine, **summary, "rows": rows}
        Path(args.json).write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
