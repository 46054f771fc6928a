"""Positional encodings as heat maps: a row for each position, a column for each feature."""

import numpy as np

from ..backend import to_numpy
from ..checks import describe
from .figures import one_axes


def positions(encoding, length=None, title=None, ax=None):
    """Draw what tells positions apart: a row for each position (0 on top), a column for each feature.

    `encoding` is a table (length, D), or a layer: SinusoidalPositions, LearnedPositions, or an Embedding of positions,
    whose tables are drawn (blue below 0, red above); or RotaryPositions, of which the angle is drawn by which each
    pair of features turns, in colours that come round as angles do. `length` is how many positions to draw: by default
    all of a table, 64 of a layer. Returns the Figure.
    Raises TypeError for what is none of these, ValueError for a table without rows or without two axes.
    """
    table, is_angle = _table(encoding, length)
    if table.ndim != 2 or not table.size:
        raise ValueError(f"positions: a table must be (length, D), got shape {table.shape}")
    ax = one_axes(ax, (5.0, 3.6))
    if is_angle:
        image = ax.imshow(table, cmap="twilight", vmin=-np.pi, vmax=np.pi, aspect="auto", interpolation="nearest")
        bar = ax.figure.colorbar(image, ax=ax, ticks=[-np.pi, 0, np.pi], label="angle")
        bar.set_ticklabels(["−π", "0", "π"])
    else:
        top = float(np.abs(table).max()) or 1.0
        image = ax.imshow(table, cmap="RdBu_r", vmin=-top, vmax=top, aspect="auto", interpolation="nearest")
        ax.figure.colorbar(image, ax=ax, label="value")
    ax.set_ylabel("position")
    ax.set_xlabel("pair of features" if is_angle else "feature")
    for axis in (ax.xaxis, ax.yaxis):
        axis.get_major_locator().set_params(integer=True)
    if title:
        ax.set_title(title, fontsize=10)
    return ax.figure


def _table(encoding, length):
    """Return the table to draw, and whether it holds angles."""
    if hasattr(encoding, "shape"):
        return to_numpy(encoding)[:length], False
    rows = 64 if length is None else length
    if hasattr(encoding, "table"):
        return np.asarray(encoding.table(rows)), False
    if hasattr(encoding, "weight"):
        return to_numpy(encoding.weight.data)[:rows], False
    if hasattr(encoding, "d_k"):
        return _angles(encoding, rows), True
    raise TypeError(f"positions: expected a table (length, D) or a layer of positions, got {describe(encoding)}")


def _angles(rotary, length):
    """Turn the vector (1, 0) of each pair at each position; what comes out is (cos a, sin a): (length, K/2)."""
    in_turn = rotary.layout == "interleaved"
    first, second = (slice(0, None, 2), slice(1, None, 2)) if in_turn else np.split(np.arange(rotary.d_k), 2)
    x = np.zeros((length, rotary.d_k))
    x[:, first] = 1
    y = rotary.forward(x)
    return np.arctan2(y[:, second], y[:, first])
