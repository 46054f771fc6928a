"""The Jacobian of a layer as a heat map: how much each output moves when one input does."""

import copy

import numpy as np

from ..backend import to_numpy
from ..checks import describe
from .figures import one_axes

LARGEST = 1024  # outputs; each costs a backward, and a picture of more rows than a screen has shows nothing
WRITTEN = 100  # up to so many entries, their values are written into the map


def jacobian(of, *inputs, wrt=0, labels=None, title=None, ax=None):
    """Draw J[i, j] = dy_i / dx_j: a row for each output, a column for each input, red above 0 and blue below.

    `of` is a matrix (outputs, inputs), or a layer with `inputs` as its forward takes them: row i is then what backward
    returns for a dy that is 1 at output i and 0 elsewhere, for input number `wrt`. Arrays of several axes are read
    row by row, with a line after each. The layer itself is left as it was; dropout in it should be off (`eval()`).
    `labels` are the names of (outputs, inputs), by default their numbers. Returns the Figure.
    Raises TypeError for what is neither, ValueError for too many outputs, or labels that do not fit.
    """
    if inputs:
        matrix, shapes = _matrix(of, inputs, wrt)
    elif hasattr(of, "shape"):
        matrix = to_numpy(of)
        shapes = [(n,) for n in matrix.shape]
    else:
        raise TypeError(f"jacobian: expected a matrix, or a layer and its inputs, got {describe(of)}")
    if matrix.ndim != 2 or not matrix.size:
        raise ValueError(f"jacobian: a matrix must be (outputs, inputs), got shape {matrix.shape}")
    names = labels or [_numbers(shape) for shape in shapes]
    if [len(n) for n in names] != list(matrix.shape):
        raise ValueError(f"jacobian: {matrix.shape} outputs and inputs got {[len(n) for n in names]} labels")
    ax = one_axes(ax, tuple(1.6 + min(0.4 * n, 4.0) for n in matrix.shape[::-1]))
    top = float(np.nanmax(np.abs(matrix))) or 1.0
    image = ax.imshow(matrix, cmap="RdBu_r", vmin=-top, vmax=top, aspect="auto", interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label="dy / dx")
    if matrix.size <= WRITTEN:
        _write(ax, matrix, top)
    for axis, shape, words in zip((ax.yaxis, ax.xaxis), shapes, names, strict=True):
        every = -(-len(words) // 40)
        axis.set_ticks(range(0, len(words), every), words[::every], fontsize=7)
        draw_line = ax.axhline if axis is ax.yaxis else ax.axvline
        if len(shape) > 1:
            for end in range(shape[-1], len(words), shape[-1]):
                draw_line(end - 0.5, color="0.5", linewidth=0.6)
    ax.tick_params(axis="x", rotation=90 if max(map(len, names[1])) > 2 else 0)
    ax.set_ylabel("output i")
    ax.set_xlabel("input j")
    if title:
        ax.set_title(title, fontsize=10)
    return ax.figure


def _matrix(layer, inputs, wrt):
    """Return the Jacobian (outputs, inputs), a backward for each row, and the shapes without axes of size 1."""
    if not hasattr(layer, "backward"):
        raise TypeError(f"jacobian: expected a layer with forward and backward, got {describe(layer)}")
    layer = copy.deepcopy(layer)  # backward adds to the parameters' gradients
    y = layer.forward(*inputs)
    if y.size > LARGEST:
        raise ValueError(f"jacobian: {y.size} outputs are too many to draw, at most {LARGEST}: give smaller inputs")
    rows = []
    for i in range(y.size):
        dy = np.zeros(y.shape, y.dtype)
        dy.flat[i] = 1
        layer.forward(*inputs)
        dx = layer.backward(dy)
        rows.append(np.ravel(dx[wrt] if isinstance(dx, tuple) else dx))
    return np.array(rows), [tuple(n for n in shape if n > 1) or (1,) for shape in (y.shape, inputs[wrt].shape)]


def _numbers(shape):
    """Name each entry by its place: "3", or "0,3" where there are several axes."""
    return [",".join(map(str, place)) for place in np.ndindex(*shape)]


def _write(ax, matrix, top):
    for (i, j), value in np.ndenumerate(matrix):
        text = f"{value:.2f}".replace("-0.00", "0.00")
        ax.text(j, i, text, ha="center", va="center", fontsize=6, color="white" if abs(value) > 0.6 * top else "black")
