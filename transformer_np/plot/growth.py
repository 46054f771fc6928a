"""How time and memory grow when a size does. On logarithmic axes a power is a straight line, its slope the exponent."""

import numpy as np

from .figures import figure

SIDES = (("", "transformer_np", "tab:blue"), ("torch_", "PyTorch", "tab:orange"))
MEASURES = (("step", "step time (ms)", 1e3), ("peak_memory", "peak memory (MB)", 1e-6))


def growth(axes, ax=None):
    """Draw step time (above) and peak memory (below) over the factor by which each size was made larger.

    `axes` is {name: rows}, as `benchmark.growth` returns it; PyTorch's curves are drawn where the rows have them. A
    dotted line grows in proportion. `ax` is an array of axes (2, len(axes)). Returns the Figure. Raises ValueError
    where there is nothing to draw, or the axes given are of another number.
    """
    if not axes:
        raise ValueError("growth: got no measurements to draw")
    grid = figure(len(axes), 2, size=(3.0, 2.6))[1] if ax is None else np.asarray(ax)
    if grid.shape != (2, len(axes)):
        raise ValueError(f"growth: {len(axes)} sizes need axes of shape (2, {len(axes)}), got {grid.shape}")
    for column, (name, rows) in enumerate(axes.items()):
        grid[0, column].set_title(name, fontsize=10)
        for ax, measure in zip(grid[:, column], MEASURES, strict=True):
            _draw(ax, rows, *measure)
    for ax, (_, label, _) in zip(grid[:, 0], MEASURES, strict=True):
        ax.set_ylabel(label)
    grid[0, 0].legend(fontsize=8)
    return grid[0, 0].figure


def _draw(ax, rows, key, label, unit):
    factors = [row["factor"] for row in rows]
    for prefix, who, color in SIDES:
        values = [row.get(prefix + key) for row in rows]
        if None not in values:
            ax.plot(factors, [unit * v for v in values], "o-", color=color, markersize=4, label=who)
            if not prefix:
                ax.plot(factors, [unit * values[0] * f / factors[0] for f in factors], ":", color="gray", linewidth=1)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(factors, [f"×{f}" for f in factors])
    ax.tick_params(axis="x", which="minor", bottom=False)
    ax.tick_params(which="both", labelsize=8)
