"""A second and a third witness beside the differences: the complex step and the Taylor rate.

Complex step: Im f(x + i h u) / h is the derivative with no subtraction and so no rounding error, where forward is
analytic and lets complex numbers through. Many functions drop the imaginary part silently (abs, var, norm), so this
witness never decides alone; that it disagrees is itself worth knowing.
Taylor: |f(x + h u) - f(x) - h <g, u>| falls with h² where the gradient is right, with h where it is wrong.
Sources: Squire and Trapp 1998; the Taylor test of dolfin-adjoint (Farrell et al. 2013).
"""

import itertools
import math
import warnings
from dataclasses import dataclass

import numpy as np

from ..backend import array_module
from .trees import differentiable

COMPLEX_STEP = 1e-30
TAYLOR_STEPS = tuple(2e-3 / 2**k for k in range(5))


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


@dataclass
class Taylor:
    """The remainders of the first-order Taylor expansion at shrinking steps, and the rounding floor beneath them."""

    steps: list
    remainders: list
    floor: float

    @property
    def rate(self):
        """The slope of the remainder against h: 2 for a right gradient, 1 for a wrong one.

        None where it drowns in rounding: a linear layer has no remainder, which is no failure, only nothing to see.
        """
        usable = [r for r in self.remainders if math.isfinite(r) and r > self.floor]
        if len(usable) < 3:
            return None
        return float(np.median([math.log2(a / b) for a, b in itertools.pairwise(usable)]))


def taylor(trial, reference, directions, epsilon):
    """Return the `Taylor` expansion along directions (watched array -> direction) taken all at once."""
    base = {w: trial.value(w).copy() for w in directions}
    size = sum(
        float((array_module(y).abs(y) * array_module(y).abs(dy)).sum())
        for y, dy in zip(reference.outputs, reference.dys, strict=True)
        if differentiable(y)
    )
    remainders = []
    try:
        for h in TAYLOR_STEPS:
            predicted = 0.0
            for w, u in directions.items():
                trial.place(w, base[w] + h * u)
                predicted += float((reference.gradients[w.name] * (trial.value(w) - base[w])).sum())
            change = sum(
                float(((a - b) * dy).sum())
                for a, b, dy in zip(trial.forward(), reference.outputs, reference.dys, strict=True)
                if differentiable(b)
            )
            remainders.append(abs(change - predicted))
    finally:
        for w, x in base.items():
            trial.place(w, x)
    return Taylor(list(TAYLOR_STEPS), remainders, 16 * epsilon * size)
