"""Gradient checkpointing: what it saves of a 12-layer model's memory, and what it costs in time.

A whole training step (dropout 0.1, label smoothing 0.1, Adam) with and without, each in a process of its own, taking
turns. Memory is the peak of the process's resident memory (VmHWM) above that of a tiny step: parameters, gradients and
Adam's two means are in it, which no checkpoint makes smaller, so the sizes are those of long batches.

    python benchmarks/checkpointing.py [--layers 6] [--batch 16] [--length 128] [--d-model 256] [--json FILE]
"""

import argparse
import json
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from transformer_np.benchmark import Side, StepSize, alternate, describe_machine, megabytes, table  # noqa: E402
from transformer_np.benchmark.contenders import numpy_step  # noqa: E402
from transformer_np.benchmark.sizes import TINY  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=6, help="of the encoder, and of the decoder (default: 6)")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--d-model", type=int, default=256)
    parser.add_argument("--vocab", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", metavar="FILE", help="also write the figures here")
    args = parser.parse_args()
    d, heads = args.d_model, max(1, args.d_model // 64)
    size = StepSize(args.batch, args.length, args.length, d, heads, args.layers, 4 * d, args.vocab)
    with ExitStack() as stack:
        call = {"warm_up": (TINY, args.threads)}
        sides = [
            stack.enter_context(Side(numpy_step, size, args.threads, checkpoint=checkpoint, **call))
            for checkpoint in (False, True)
        ]
        seconds = alternate([side.run for side in sides], args.repeats)
        memory = [side.peak_memory() for side in sides]
    medians = [statistics.median(s) for s in seconds]
    lines = [
        [name, f"{1e3 * t:.0f}", megabytes(m)]
        for name, t, m in zip(("everything kept", "checkpoint=True"), medians, memory, strict=True)
    ]
    print(f"{size}, {args.threads} threads, medians of {args.repeats}")
    print(table(["", "step ms", "peak MB"], lines))
    print(f"memory x {memory[1] / memory[0]:.2f} (wanted: 0.5 or less), time x {medians[1] / medians[0]:.2f} (1.4)")
    if args.json:
        result = {"machine": describe_machine(), "size": size.as_dict(), "threads": args.threads}
        result |= {"seconds": medians, "peak_memory": memory, "order": ["everything kept", "checkpoint=True"]}
        Path(args.json).write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
