"""Measurements as text: Markdown tables that also read well in a terminal."""

from .sizes import StepSize


def table(head, rows):
    """Return a Markdown table of strings, every column as wide as its widest entry."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(entry.ljust(width) for entry, width in zip(line, widths, strict=True)) + " |"
        for line in lines
    )


def step_table(rows):
    """Return the table of step_row's rows; with PyTorch's columns where they were measured."""
    with_torch = "torch_step" in rows[0]
    head = ["", "step ms", *(["PyTorch ms", "ratio"] if with_torch else []), "GEMM share", "peak MB"]
    head += ["PyTorch MB", "ratio"] if with_torch else []
    lines = []
    for row in rows:
        line = [f"{row['name']}: {StepSize(**row['size'])}", f"{1e3 * row['step']:.1f}"]
        if with_torch:
            line += [f"{1e3 * row['torch_step']:.1f}", f"{row['ratio']:.2f}"]
        line += [f"{100 * row['share']:.0f} %", megabytes(row["peak_memory"])]
        if with_torch:
            memory_ratio = row["memory_ratio"]
            line += [megabytes(row["torch_peak_memory"]), "" if memory_ratio is None else f"{memory_ratio:.2f}"]
        lines.append(line)
    return table(head, lines)


def growth_table(axes):
    """Return the table of `growth`: how time and memory grow with each thing."""
    first = next(iter(axes.values()))[0]
    with_torch = "torch_step" in first
    head = ["", "step ms", *(["PyTorch ms", "ratio"] if with_torch else []), "peak MB"]
    head += ["time grows by", "memory by"]
    lines = []
    for axis, rows in axes.items():
        for before, row in zip([None, *rows], rows, strict=False):
            line = [f"{axis} x {row['factor']}", f"{1e3 * row['step']:.1f}"]
            if with_torch:
                line += [f"{1e3 * row['torch_step']:.1f}", f"{row['ratio']:.2f}"]
            line.append(megabytes(row["peak_memory"]))
            line += ["", ""] if before is None else [_times(row, before, name) for name in ("step", "peak_memory")]
            lines.append(line)
    return table(head, lines)


def megabytes(n_bytes):
    """Return the number of megabytes (10^6 bytes), as text; a dash where it is not known."""
    if n_bytes is None:
        return "-"
    return f"{n_bytes / 1e6:.0f}" if n_bytes >= 1e7 else f"{n_bytes / 1e6:.1f}"


def _times(row, before, name):
    """How often the row's value holds that of the row before."""
    if not row[name] or not before[name]:  # not known, or nothing at all
        return "-"
    return f"x {row[name] / before[name]:.2f}"
