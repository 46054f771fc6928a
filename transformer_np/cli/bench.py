"""`transformer-np bench`: how fast and how large a training step is on this machine."""

import argparse
import json
import sys

from .arguments import whole_number

DESCRIPTION = """\
Measure whole training steps (dropout, label smoothing, Adam) on this machine,
beside PyTorch's own Transformer where PyTorch is installed. Each side runs in
a process of its own; the two take turns, and medians are shown. "GEMM share"
is the time that the matrix products of forward and backward would take at the
best rate NumPy reaches here, out of the time that forward and backward took.
Memory is the peak above the loaded libraries.
"""

EXAMPLE = """\
examples:
  transformer-np bench                            two sizes, then how they grow
  transformer-np bench --sizes base --no-growth   the paper's base size alone
  transformer-np bench --sizes all --json bench.json
"""


def add_parser(subparsers):
    """Add `bench` to the command line."""
    from ..benchmark.sizes import SIZES

    parser = subparsers.add_parser(
        "bench",
        help="measure the speed and memory of training on this machine",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    count = {"type": whole_number(1), "metavar": "N"}
    add = parser.add_argument
    add("--sizes", nargs="+", choices=(*SIZES, "all"), default=["dates", "small"], help="(default: dates small)")
    add("--threads", **count, default=2, help="threads of each side (default: 2)")
    add("--repeats", **count, default=7, help="timed steps of each size (default: 7)")
    add("--no-torch", action="store_true", help="leave PyTorch out")
    add("--no-growth", action="store_true", help="leave out how time and memory grow")
    add("--picture", default="bench.png", metavar="FILE", help="where the curves go (default: bench.png)")
    add("--json", metavar="FILE", help="also write everything, with the machine, here")
    add("--quiet", action="store_true", help="do not say what is being measured")
    parser.set_defaults(run=run)


def run(args):
    """Measure, and show."""
    from .. import benchmark

    def progress(text):
        if not args.quiet:
            print(f"measuring {text}", file=sys.stderr, flush=True)

    machine, with_torch = benchmark.describe_machine(), benchmark.torch_installed() and not args.no_torch
    names = list(benchmark.SIZES) if "all" in args.sizes else args.sizes
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    print(f"{args.threads} threads; GEMM share: of the rate at which NumPy multiplied float32 matrices meanwhile\n")
    rows = []
    for name in names:
        size = benchmark.SIZES[name]
        progress(f"{name}: {size}")
        rows.append(benchmark.step_row(name, size, args.threads, args.repeats, with_torch))
    print(benchmark.step_table(rows))
    if with_torch:
        print(f"geometric mean of the time ratios: {benchmark.geometric_mean([row['ratio'] for row in rows]):.2f}")
    axes = {}
    if not args.no_growth:
        axes = benchmark.growth(args.threads, args.repeats, with_torch, progress=progress)
        print(f"\nstarting from {benchmark.GROWTH}\n{benchmark.growth_table(axes)}")
        from ..plot.growth import growth

        growth(axes).savefig(args.picture, dpi=120)
        print(f"saved {args.picture}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine, "steps": rows, "growth": axes}, file, indent=1)
        print(f"saved {args.json}")
    return 0
