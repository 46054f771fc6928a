"""Self-attention, LSTM and convolution by sequence length and width: table 1 of the paper, measured.

    python benchmarks/layers.py                                 the table
    python benchmarks/layers.py --json layers.json --picture layers.png
    python benchmarks/layers.py --lengths 16 64 256 --widths 64 128

One layer of each kind, D in and D out, forward and backward in float32: multi-head attention with its projections,
an LSTM, and a causal convolution of kernel 3. The three take turns; a time is the median of the rounds, for one batch.
"steps" is how many products must wait for one another; "path" how many steps or layers lie between the first and the
last position; "memory" the most that forward and backward hold at once. The last table says from which length on
self-attention takes more than the others. Counting products, it passes the LSTM at twice the width; measured, a narrow
layer does later, since the LSTM's many small steps cost more than their products, and a wide one with many heads
sooner, since exponentials and passes over memory count as well.
"""

import argparse
import gc
import json
import math
import pathlib
import platform
import statistics
import time
import tracemalloc

import numpy as np
from threadpoolctl import threadpool_limits

from transformer_np.layers import LSTM, Conv1D, MultiHeadAttention

KERNEL_SIZE = 3
K = 32  # the width of a head
COLOURS = {"self-attention": "tab:blue", "LSTM": "tab:orange", "convolution": "tab:green"}


class SelfAttention:
    """Multi-head attention with one array in all three roles."""

    def __init__(self, d_model):
        self.attention = MultiHeadAttention(d_model, max(1, d_model // K), seed=0)

    def forward(self, x):
        return self.attention.forward(x, x, x)

    def backward(self, dy):
        dq, dk, dv = self.attention.backward(dy)
        return dq + dk + dv


class Recurrence:
    """An LSTM, of which the outputs alone are used."""

    def __init__(self, d_model):
        self.lstm = LSTM(d_model, d_model, seed=0)

    def forward(self, x):
        return self.lstm.forward(x)[0]

    def backward(self, dy):
        return self.lstm.backward(dy)[0]


KINDS = {
    "self-attention": SelfAttention,
    "LSTM": Recurrence,
    "convolution": lambda d_model: Conv1D(d_model, d_model, KERNEL_SIZE, "causal", seed=0),
}


def sequential_steps(kind, length):
    """How many products of one layer's forward must wait for one another, but for a constant: table 1."""
    return length if kind == "LSTM" else 1


def path_length(kind, length):
    """How many steps or layers lie between the first and the last position: table 1, with convolutions not dilated."""
    return {"self-attention": 1, "LSTM": length, "convolution": math.ceil((length - 1) / (KERNEL_SIZE - 1))}[kind]


def products(kind, length, width):
    """Multiplications in the matrix products of one forward, for one sequence."""
    return {
        "self-attention": 4 * length * width**2 + 2 * length**2 * width,
        "LSTM": 8 * length * width**2,
        "convolution": KERNEL_SIZE * length * width**2,
    }[kind]


def once(layer, x, dy):
    """Forward and backward; return the seconds of each."""
    start = time.perf_counter()
    layer.forward(x)
    middle = time.perf_counter()
    layer.backward(dy)
    return middle - start, time.perf_counter() - middle


def measure(width, length, batch_size, rounds):
    """Measure the three kinds, taking turns; return a row for each."""
    rng = np.random.default_rng(0)
    x, dy = (rng.standard_normal((batch_size, length, width), np.float32) for _ in range(2))
    layers = {kind: make(width) for kind, make in KINDS.items()}
    times = {kind: [] for kind in KINDS}
    for _ in range(rounds + 1):  # the first round warms up
        for kind, layer in layers.items():
            times[kind].append(once(layer, x, dy))
    rows = []
    for kind, layer in layers.items():
        forward, backward = (statistics.median(t[i] for t in times[kind][1:]) for i in (0, 1))
        gc.collect()
        tracemalloc.start()
        once(layer, x, dy)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        rows.append(
            {
                "kind": kind,
                "width": width,
                "length": length,
                "forward_ms": 1e3 * forward,
                "forward_and_backward_ms": 1e3 * (forward + backward),
                "steps": sequential_steps(kind, length),
                "path": path_length(kind, length),
                "memory_mb": peak / 1e6,
                "million_products": products(kind, length, width) / 1e6,
            }
        )
    return rows


def crossing(rows, width, other, what="forward_and_backward_ms"):
    """Return the length from which self-attention needs more of `what` than `other`, between two measured lengths.

    None: it never does within what was measured; the shortest length: it does from the start.
    """
    ratios = {}
    for row in rows:
        if row["width"] == width and row["kind"] in ("self-attention", other):
            ratios.setdefault(row["length"], {})[row["kind"]] = row[what]
    points = [(math.log(n), math.log(both["self-attention"] / both[other])) for n, both in sorted(ratios.items())]
    below = [i for i, (_, ratio) in enumerate(points) if ratio <= 0]
    if not below:
        return round(math.exp(points[0][0]))
    last = below[-1]
    if last == len(points) - 1:
        return None
    (x0, y0), (x1, y1) = points[last], points[last + 1]
    return round(math.exp(x0 - y0 * (x1 - x0) / (y1 - y0)))


def crossing_on_paper(width, other):
    """Return the length from which self-attention needs more products: 4 L D² + 2 L² D = c L D² at L = (c - 4) D / 2.

    c is 8 for the LSTM; for a convolution it is its kernel's size, and with less than 4 attention needs more from the
    start, which is at length 1.
    """
    c = products(other, 1, width) // width**2
    return max(1, (c - 4) * width // 2)


def crossings(rows, widths):
    """One row for each width and other kind: where times and memory cross, and where the products would."""
    found = []
    for width in widths:
        for other in ("LSTM", "convolution"):
            whats = {"time": "forward_and_backward_ms", "memory": "memory_mb"}
            at = {name: crossing(rows, width, other, what) for name, what in whats.items()}
            found.append({"width": width, "other": other, **at, "products": crossing_on_paper(width, other)})
    return found


def print_crossings(found, lengths):
    """Print where the lines cross as a table."""

    def text(length):
        if length is None:
            return f"beyond {max(lengths)}"
        return f"{length}" if length > min(lengths) else f"below {length}"

    print("\nSelf-attention takes more than the other from this length on:\n")
    print("| width | other | time | memory | products on paper |\n|---|---|---|---|---|")
    for row in found:
        on_paper = "the first" if row["products"] == 1 else row["products"]
        print(f"| {row['width']} | {row['other']} | {text(row['time'])} | {text(row['memory'])} | {on_paper} |")


def draw(rows, found, widths, path):
    """Draw time and memory over the length, a column for each width; a dotted line where attention meets the LSTM."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(widths), figsize=(4 * len(widths), 6.5), squeeze=False, sharex=True)
    panels = (("forward_and_backward_ms", "ms, forward and backward"), ("memory_mb", "MB"))
    for column, width in enumerate(widths):
        for (what, label), ax in zip(panels, axes[:, column], strict=True):
            for kind, colour in COLOURS.items():
                line = [(row["length"], row[what]) for row in rows if (row["kind"], row["width"]) == (kind, width)]
                ax.loglog(*zip(*sorted(line), strict=True), marker="o", color=colour, label=kind)
            ax.set_ylabel(label)
            ax.grid(alpha=0.3)
        shortest = min(row["length"] for row in rows)
        for row in found:
            if row["width"] == width and row["time"] not in (None, shortest):
                axes[0, column].axvline(row["time"], color=COLOURS[row["other"]], linestyle=":")
        axes[0, column].set_title(f"width {width}")
        axes[1, column].set_xlabel("sequence length")
    axes[0, 0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    """Measure, print both tables, and write JSON and the picture where asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[16, 32, 64, 128, 256, 512, 1024])
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 256, 512])
    parser.add_argument("--batch", type=int, default=8, help="sequences in a batch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="of the matrix library")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to this file")
    parser.add_argument("--picture", type=pathlib.Path, help="draw them to this file")
    args = parser.parse_args()
    lengths, widths, rows = sorted(args.lengths), sorted(args.widths), []
    print("| width | length | kind | forward ms | with backward ms | times attention's | steps | path | memory MB |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    with threadpool_limits(args.threads):
        for width in widths:
            for length in lengths:
                group = measure(width, length, args.batch, args.rounds)
                rows += group
                for row in group:
                    ratio = row["forward_and_backward_ms"] / group[0]["forward_and_backward_ms"]
                    times = f"{row['forward_ms']:.1f} | {row['forward_and_backward_ms']:.1f} | {ratio:.2f}"
                    counts = f"{row['steps']} | {row['path']} | {row['memory_mb']:.1f}"
                    print(f"| {width} | {length} | {row['kind']} | {times} | {counts} |", flush=True)
    found = crossings(rows, widths)
    print_crossings(found, lengths)
    if args.json:
        machine = {"machine": platform.machine(), "python": platform.python_version(), "numpy": np.__version__}
        content = {**machine, "batch": args.batch, "threads": args.threads, "rows": rows, "crossings": found}
        args.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if args.picture:
        draw(rows, found, widths, args.picture)


if __name__ == "__main__":
    main()
