"""The error of a central difference against its step h: a V, and where its foot lies."""

import copy

import numpy as np

from ..checks import describe
from .figures import STYLES, one_axes

FLOOR = 1e-18  # drawn in place of an error of exactly 0, for which a logarithmic axis has no place

DY_SEED = 20170612  # one that nobody draws x with: of a layer norm, a dy that equals x has a gradient of almost 0


def error_against_h(of, x=None, gradient=None, *, h=None, dtypes=("float32", "float64"), title=None, ax=None):
    """Draw the relative error of (f(x + h) - f(x - h)) / 2h over h, and mark the best h.

    Large steps err by the bend of f, as h²; small ones by rounding, as eps / h; in between, near eps^(1/3), is the
    best there is. A gradient that is wrong gives a flat line instead: no h makes it small.
    `of` is one of
    a layer   and its input x: the gradient is what its backward returns for a random dy (always the same);
    a function of an array, x, and `gradient`, a function that returns the gradient of f(x).sum(), or that array;
    Each of `dtypes` has its curve: f is computed in it, while the gradient is computed in float64. `h` is the list of
    steps, by default from 1 down to 1e-14. The error is |numeric - analytic| / |analytic|, by the norm over all entries
    of x: two forwards each, so keep x small. Returns the Figure.
    Raises TypeError for what is none of these, ValueError where something is missing or nothing can be drawn.
    """
    curves = _measure(of, x, gradient, h, dtypes)
    ax = one_axes(ax, (5.0, 3.6))
    for i, (label, (steps, errors)) in enumerate(curves.items()):
        color, marker = STYLES[i % len(STYLES)]
        if not np.isfinite(errors).any():
            raise ValueError(f"error_against_h: in {label}, f is not finite at any x ± h")
        best = int(np.nanargmin(errors))
        words = f"{label}: best h {steps[best]:.0e}, error {errors[best]:.0e}"
        ax.plot(steps, np.maximum(errors, FLOOR), color=color, marker=marker, markersize=3.5, linewidth=1, label=words)
        ax.axvline(steps[best], color=color, linestyle=":", linewidth=1)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(bottom=1e-3 * max(FLOOR, min(float(np.nanmin(errors)) for _, errors in curves.values())))  # for words
    ax.set_xlabel("step h")
    ax.set_ylabel("relative error")
    ax.legend(fontsize=8, loc="lower left")
    if title:
        ax.set_title(title, fontsize=10)
    return ax.figure


def _measure(of, x, gradient, h, dtypes):
    """Return {dtype: (steps, errors)}."""
    is_layer = hasattr(of, "backward")
    if not is_layer and not callable(of):
        raise TypeError(f"error_against_h: expected a layer or a function, got {describe(of)}")
    if x is None or (gradient is None and not is_layer):
        raise ValueError("error_against_h: a layer needs x; a function needs x and its gradient")
    x = np.array(x, np.float64)
    steps = np.asarray(np.logspace(0, -14, 43) if h is None else h, np.float64)
    if is_layer:
        layer = _converted(of, "float64")
        y = layer.forward(x)
        dy = np.random.default_rng(DY_SEED).standard_normal(y.shape)
        analytic = layer.backward(dy)
    else:
        analytic, dy = gradient(x) if callable(gradient) else gradient, 1.0
    analytic = np.asarray(analytic, np.float64)
    if analytic.shape != x.shape or not np.linalg.norm(analytic):
        raise ValueError(f"error_against_h: needs a gradient of shape {x.shape} that is not zero, got {analytic!r:.60}")
    curves = {}
    for dtype in dtypes:
        forward = _converted(of, dtype).forward if is_layer else of
        with np.errstate(all="ignore"):  # steps so large that f is not finite are simply not drawn
            numeric = [_difference(forward, x.astype(dtype), dy, step) for step in steps]
        errors = [np.linalg.norm(n - analytic) / np.linalg.norm(analytic) for n in numeric]
        curves[str(np.dtype(dtype))] = steps, np.array(errors)
    return curves


def _converted(layer, dtype):
    """A copy of the layer in that dtype; a stranger's layer without `astype` follows its input."""
    layer = copy.deepcopy(layer)
    return layer.astype(dtype) if hasattr(layer, "astype") else layer


def _difference(forward, x, dy, h):
    """The gradient of sum(dy f(x)) by central differences, entry by entry, in the dtype of x."""
    numeric = np.zeros(x.shape)
    for place in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[place] += h
        down[place] -= h
        moved = np.asarray(forward(up) - forward(down), np.float64)  # subtracted in x's dtype, added up in float64
        numeric[place] = (moved * dy).sum() / (2 * h)
    return numeric
