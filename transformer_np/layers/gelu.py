"""GELU: each number times the chance that a standard normal number is smaller. A ReLU with a soft corner."""

import functools
import math

import numpy as np

from .. import kernels
from ..backend import array_module, widen
from ..checks import check_choice, check_floats
from ..kernels import on_gpu
from ..module import Module

STEPS = 256  # table entries per unit: a power of two, so that grid points and distances to them are exact
REACH = 39  # beyond it Phi is 0 or 1 in float64
BLOCK = 16384  # numbers at a time, so that the intermediate arrays stay in the processor's cache

FAR = 10  # beyond it the tanh form's t is -1 or 1, to the last digit
TANH_SCALE = math.sqrt(2 / math.pi)
TANH_CUBE = 0.044715


@functools.cache
def normal_table(dtype):
    """Return Phi and phi, the standard normal distribution and density, at -REACH .. REACH, STEPS to a unit."""
    grid = np.arange(-REACH * STEPS, REACH * STEPS + 1) / STEPS
    cdf = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in grid])
    return cdf.astype(dtype), normal_pdf(grid).astype(dtype)


def normal_pdf(x):
    """Return phi(x) = exp(-x²/2) / sqrt(2 pi)."""
    with np.errstate(over="ignore"):  # far out the square may be infinite, and the density is 0
        pdf = array_module(x).exp(-0.5 * x * x)
    pdf *= 1 / math.sqrt(2 * math.pi)
    return pdf


def normal_cdf(x):
    """Return Phi(x) = (1 + erf(x / sqrt(2))) / 2, to the last digit or two of x's type.

    NumPy has no erf, and calling math.erf on every entry is some ten times slower than this: the nearest entry of a
    table of math.erfc, then Phi's Taylor series from there, whose terms need nothing but phi at that entry:
        Phi(a + d) = Phi(a) + phi(a) (d - a d²/2 + (a² - 1) d³/6 - (a³ - 3a) d⁴/24 + (a⁴ - 6a² + 3) d⁵/120 - ...)
    With |d| at most 1/512 the terms shown leave an error below 1e-17, and the first two one below 1e-9, which is
    enough for float32. On a GPU CuPy's own function is used.
    """
    if x.dtype not in (np.float32, np.float64):
        return normal_cdf(x.astype(np.float32)).astype(x.dtype)
    if array_module(x) is not np:
        from cupyx.scipy.special import ndtr

        return ndtr(x)
    cdf = np.empty(x.shape, x.dtype)
    flat, out = x.reshape(-1), cdf.reshape(-1)
    for start in range(0, x.size, BLOCK):
        block = slice(start, start + BLOCK)
        _normal_cdf_block(flat[block], out[block])
    return cdf


def _normal_cdf_block(x, out):
    cdf, pdf = normal_table(x.dtype)
    x = np.clip(x, -REACH, REACH)
    a = np.rint(x * STEPS)
    with np.errstate(invalid="ignore"):  # NaN has no nearest entry; it comes back as NaN, through d
        nearest = a.astype(np.intp)
    nearest += REACH * STEPS
    a *= 1 / STEPS
    d = x - a
    if x.dtype == np.float32:
        series = 1 - 0.5 * a * d
    else:
        a2 = a * a
        series = (a2 * (a2 - 6) + 3) * d / 120
        series += a * (3 - a2) / 24
        for term in ((a2 - 1) / 6, -0.5 * a, 1):
            series *= d
            series += term
    series *= d
    series *= pdf.take(nearest, mode="clip")
    np.add(series, cdf.take(nearest, mode="clip"), out=out)


class GELU(Module):
    """y = x Phi(x), entry by entry, Phi the standard normal distribution; or its approximation by tanh.

    approximate="none": Phi(x) = (1 + erf(x / sqrt(2))) / 2, with the density phi(x) = exp(-x²/2) / sqrt(2 pi) as slope.
    approximate="tanh": (1 + t) / 2 in place of Phi(x),  t = tanh(sqrt(2/pi) (x + 0.044715 x³)).
    The two differ by up to 4.7e-4, at |x| = 2.7: weights belong to the one they were trained with. BERT, ViT and
    RoBERTa have "none"; GPT-2 and T5 v1.1 have "tanh" ("gelu_new").
    Shapes: x any, y the same. Backward, each the derivative of its own forward:
        none: dx = dy * (Phi(x) + x phi(x))
        tanh: dx = dy * ((1 + t) / 2 + x (1 - t²) / 2 * sqrt(2/pi) (1 + 3 * 0.044715 x²))
    Raises ValueError for another `approximate`.
    Source: Hendrycks and Gimpel 2016. Derivation: docs/derivations/gelu.md.
    """

    def __init__(self, approximate="none", *, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        check_choice(self, "approximate", approximate, ("none", "tanh"))
        self.approximate = approximate

    @on_gpu(kernels.gelu)
    def forward(self, x):
        """x (...) -> y (...)."""
        check_floats(self, "x", x, min_ndim=0)
        xp, dtype, x = array_module(x), x.dtype, widen(x)
        if self.approximate == "none":
            near, kept = x, normal_cdf(x)  # Phi
            y = x * kept
        else:
            near = x.clip(-FAR, FAR)  # nothing changes beyond, but its cube could overflow
            kept = near * near
            kept *= TANH_SCALE * TANH_CUBE
            kept += TANH_SCALE
            kept *= near
            kept = xp.tanh(kept)  # t
            y = kept + 1
            y *= 0.5
            y *= x
        y = y.astype(dtype, copy=False)
        self.save_for_backward(near.astype(dtype, copy=False), kept.astype(dtype, copy=False), output=y)
        return y

    @on_gpu(kernels.gelu_backward)
    def backward(self, dy):
        """dy (...) -> dx (...)."""
        x, kept = map(widen, self.saved(dy))
        if self.approximate == "none":
            slope = normal_pdf(x)
            slope *= x
            slope += kept
        else:
            slope = x * x
            slope *= 3 * TANH_SCALE * TANH_CUBE
            slope += TANH_SCALE
            slope *= x
            slope *= 1 - kept * kept
            slope += kept
            slope += 1
            slope *= 0.5
        slope *= dy
        return slope.astype(dy.dtype, copy=False)
