"""Root-mean-square normalisation: divide every position by its size; no mean is taken off, no shift is added."""

import numpy as np

from .. import kernels
from ..backend import array_module, row_dots, widen
from ..checks import check_floats, check_positive, check_real
from ..kernels import on_gpu
from ..module import Module, Parameter
from .linear import column_sums


class RMSNorm(Module):
    """y = gamma * n,  n = x / sqrt(mean(x²) + eps), each position on its own: layer norm without its two means.

    Shapes: x (..., D), gamma (D,), y (..., D).
    Backward, with g = gamma * dy:
        dx = (g - n * mean(g * n)) / sqrt(mean(x²) + eps),  dgamma = sum of dy * n over the positions.
    Raises ValueError for a wrong last axis or dtype, and unless eps is positive.
    Source: Zhang and Sennrich 2019, equation 4; used by T5 and Llama. Derivation: docs/derivations/rms-norm.md.
    """

    def __init__(self, d_model, eps=1e-6, *, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        check_positive(self, d_model=d_model)
        check_real(self, eps=eps)
        if not eps > 0:
            raise ValueError(f"RMSNorm: eps must be positive, got {eps!r}")
        self.d_model, self.eps = int(d_model), float(eps)  # NumPy scalars would turn float32 into float64
        self.gamma = Parameter(np.ones(d_model, self.dtype))

    @on_gpu(kernels.rms_norm)
    def forward(self, x):
        """x (..., D) -> y (..., D)."""
        check_floats(self, "x", x, last=self.d_model, dtype=self.dtype)
        rows = widen(x.reshape(-1, self.d_model))  # (N, D)
        rms = array_module(rows).sqrt(row_dots(rows, rows) / self.d_model + self.eps)  # (N, 1)
        n = rows / rms
        y = (n * self.gamma.data).reshape(x.shape).astype(x.dtype, copy=False)
        self.save_for_backward(n.astype(x.dtype, copy=False), rms, output=y)
        return y

    @on_gpu(kernels.rms_norm_backward)
    def backward(self, dy):
        """dy (..., D) -> dx (..., D); adds dgamma."""
        n, rms = self.saved(dy)
        shape, dy = dy.shape, dy.reshape(-1, self.d_model)  # (N, D)
        dy, n = widen(dy), widen(n)
        self.gamma.accumulate(column_sums(dy * n))
        dx = dy * self.gamma.data  # g
        dx -= n * (row_dots(dx, n) / self.d_model)
        dx /= rms
        return dx.reshape(shape).astype(self.dtype, copy=False)
