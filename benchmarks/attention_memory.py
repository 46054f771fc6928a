"""Blockwise attention beside the plain one: peak memory and time of forward and backward as the text grows longer.

d = 64, 4 heads: q, k, v and dy are (1, 4, L, d), d in each head unless --d-head says otherwise; float32, on one thread.
Memory is the peak of the process's resident memory (VmHWM) above what it held once the inputs were there, each
measurement in a process of its own. The plain attention stops where its weights would take more than --plain-mb.

    python benchmarks/attention_memory.py [--lengths 1024 2048 ... 16384] [--block 128] [--causal] [--json FILE]
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from transformer_np.benchmark import Side, describe_machine, megabytes, table  # noqa: E402
from transformer_np.layers import BlockwiseAttention, ScaledDotProductAttention  # noqa: E402
from transformer_np.masks import look_ahead_mask  # noqa: E402

LIMIT = 500e6  # bytes above the inputs that blockwise attention may take at 16,384 tokens


class Attention:
    """One attention with its inputs; a call is a forward and a backward."""

    def __init__(self, kind, length, d_head, block, causal, dropout):
        rng = np.random.default_rng(0)
        self.inputs = [rng.standard_normal((1, 4, length, d_head), "float32") for _ in range(4)]
        self.layer = ScaledDotProductAttention(dropout, seed=0)
        self.mask = look_ahead_mask(length) if causal and kind == "plain" else None
        if kind == "blockwise":
            self.layer = BlockwiseAttention(dropout, block=block, causal=causal, seed=0)

    def __call__(self):
        *inputs, dy = self.inputs
        with threadpool_limits(1, user_api="blas"):  # as in a trainer's thread; products of 128 gain nothing from two
            self.layer.forward(*inputs, self.mask)
            self.layer.backward(dy)


def build(*arguments):
    """What a measured process runs: the inputs are made here, and the memory that they take is told apart."""
    attention = Attention(*arguments)
    return {"step": attention, "inputs": lambda: None}


def measure(kind, length, args):
    """Return one row: seconds and bytes above the inputs."""
    options = (args.d_head, args.block, args.causal, args.dropout)
    with Side(build, kind, length, *options, warm_up=(kind, 64, *options)) as side:
        inputs = side.peak_memory()
        seconds = statistics.median(side.run() for _ in range(args.repeats))
        above = side.peak_memory() - inputs
    return {"kind": kind, "length": length, "seconds": seconds, "bytes_above_inputs": above}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--plain-mb", type=float, default=2000, help="largest (H, L, L) array of the plain attention")
    parser.add_argument("--d-head", type=int, default=64)
    parser.add_argument("--block", type=int, default=128)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", metavar="FILE", help="also write the figures here")
    args = parser.parse_args()
    rows = []
    for length in args.lengths:
        rows.append(measure("blockwise", length, args))
        if 4 * length**2 * 4 <= 1e6 * args.plain_mb:
            rows.append(measure("plain", length, args))
        print(rows[-1], file=sys.stderr, flush=True)
    rows.sort(key=lambda row: row["kind"])
    lines = []
    for before, row in zip([None, *rows], rows, strict=False):
        grown = ["", ""]
        if before is not None and before["kind"] == row["kind"]:
            grown = [f"x {row[key] / max(before[key], 1e-9):.2f}" for key in ("seconds", "bytes_above_inputs")]
        line = [row["kind"], f"{row['length']:,}", f"{row['seconds']:.2f}", megabytes(row["bytes_above_inputs"])]
        lines.append(line + grown)
    print(table(["attention", "tokens", "s", "MB above inputs", "time grows by", "memory by"], lines))
    last = max((row for row in rows if row["kind"] == "blockwise"), key=lambda row: row["length"])
    met = last["bytes_above_inputs"] < LIMIT
    print(f"{last['length']:,} tokens: {megabytes(last['bytes_above_inputs'])} MB, limit {megabytes(LIMIT)}: {met}")
    if args.json:
        settings = {"heads": 4, "d_head": args.d_head, "block": args.block, "causal": args.causal}
        settings |= {"dropout": args.dropout, "memory": "VmHWM of a process of its own, above the inputs"}
        result = {"machine": describe_machine(), **settings, "rows": rows}
        Path(args.json).write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
