"""A second and a third witness beside the differences: the complex step and the Taylor rate.

Complex step: Im f(x + i h u) / h is the derivative with no subtraction and so no rounding error, where the code of forward
is analytic and lets complex numbers through. Many functions drop the imaginary part silently (abs, var, norm), so this
witness never decides alone; that it disagrees is itself worth knowing.
Taylor: |f(x + h u) - f(x) - h <g, u>| falls with h² where the gradient is right, with h where it is wrong.
Sources: Squire and Trapp 1998; the Taylor test of dolfin-adjoint (Farrell et al. 2013).
"""

import math
import warnings

import numpy as np

from ..backend import array_module
from .trees import differentiable

COMPLEX_STEP = 1e-30
TAYLOR_STEPS = tuple(0.02 / 2 ** k for k in range(5))


def complex_step(trial, dys, watched, direction):
    """Return <dy, Im f(x + i h u) / h>, or None where forward does not take complex numbers."""
    x = trial.value(watched)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", _complex_warning())
            trial.place(watched, x + (1j * COMPLEX_STEP) * direction)
            outputs = trial.forward()
    except Exception:  # any refusal means only that this witness has nothing to say
        return None
    finally:
        trial.place(watched, x)
    if not any(y.dtype.kind == "c" for y in outputs) or len(outputs) != len(dys):
        return None
    total = sum(float((y.imag * dy).sum()) for y, dy in zip(outputs, dys, strict=True) if y.dtype.kind == "c")
    return total / COMPLEX_STEP


def _complex_warning():
    return getattr(getattr(np, "exceptions", np), "ComplexWarning", RuntimeWarning)


def taylor(trial, dys, outputs, watched, direction, analytic):
    """Return (steps, remainders, rounding floor) of the first-order Taylor expansion along a direction."""
    x = trial.value(watched)
    base, xp = x.copy(), array_module(x)
    remainders = []
    noise = sum(float((xp.abs(y) * xp.abs(dy)).sum()) for y, dy in zip(outputs, dys, strict=True) if differentiable(y))
    try:
        for h in TAYLOR_STEPS:
            trial.place(watched, base + h * direction)
            moved = trial.value(watched) - base
            change = sum(float(((a - b) * dy).sum())
                         for a, b, dy in zip(trial.forward(), outputs, dys, strict=True) if differentiable(b))
            remainders.append(abs(change - float((analytic * moved).sum())))
    finally:
        trial.place(watched, base)
    return list(TAYLOR_STEPS), remainders, 16 * float(np.finfo(np.float64).eps) * noise


def taylor_rate(remainders, floor):
    """The slope of the remainder against h: 2 for a right gradient, 1 for a wrong one, None where it drowns in rounding.

    A linear layer has no remainder at all; that is no failure, only nothing to see.
    """
    usable = [r for r in remainders if math.isfinite(r) and r > floor]
    if len(usable) < 3:
        return None
    return float(np.mean([math.log2(a / b) for a, b in zip(usable, usable[1:], strict=False) if b > 0]))
