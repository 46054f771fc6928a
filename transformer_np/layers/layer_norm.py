"""Layer normalisation: give every position mean 0 and variance 1, then a learned scale and shift."""

import numpy as np

from .. import kernels
from ..backend import row_dots, widen
from ..checks import check_floats, check_positive, check_real
from ..kernels import on_gpu
from ..module import Module, Parameter
from .linear import column_sums


class LayerNorm(Module):
    """y = gamma * n + beta,  n = (x - mean(x)) / sqrt(var(x) + eps), each position on its own.

    Mean and variance (divided by D, not D - 1) are over the last axis; eps is inside the root.
    Shapes: x (..., D), gamma and beta (D,), y (..., D).
    Backward, with g = gamma * dy:
        dx = (g - mean(g) - n * mean(g * n)) / sqrt(var(x) + eps)
        dgamma = sum of dy * n over the positions,  dbeta = sum of dy.
    The two means are the paths through mean(x) and var(x).
    Source: Ba et al. 2016; used in section 3.1. Derivation: docs/derivations/layer-norm.md.
    """

    def __init__(self, d_model, eps=1e-5, *, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        check_positive(self, d_model=d_model)
        check_real(self, eps=eps)
        if not eps > 0:
            raise ValueError(f"LayerNorm: eps must be positive, got {eps!r}")
        self.d_model, self.eps = int(d_model), float(eps)  # a NumPy number would make float64 of float32
        self.gamma = Parameter(np.ones(d_model, self.dtype))
        self.beta = Parameter(np.zeros(d_model, self.dtype))

    @on_gpu(kernels.layer_norm)
    def forward(self, x):
        """x (..., D) -> y (..., D)."""
        check_floats(self, "x", x, last=self.d_model, dtype=self.dtype)
        rows = widen(x.reshape(-1, self.d_model))  # (N, D)
        n = rows - rows.sum(-1, keepdims=True) / self.d_model  # NumPy's own `mean` takes longer to start
        std = (row_dots(n, n) / self.d_model + self.eps) ** 0.5  # (N, 1)
        n /= std
        y = n * self.gamma.data
        y += self.beta.data
        y = y.reshape(x.shape).astype(x.dtype, copy=False)
        self.save_for_backward(n.astype(x.dtype, copy=False), std, output=y)
        return y

    @on_gpu(kernels.layer_norm_backward)
    def backward(self, dy):
        """dy (..., D) -> dx (..., D); adds dgamma and dbeta."""
        n, std = self.saved(dy)
        shape, dy = dy.shape, dy.reshape(-1, self.d_model)  # (N, D)
        dy, n = widen(dy), widen(n)
        self.gamma.accumulate(column_sums(dy * n))
        self.beta.accumulate(column_sums(dy))
        g = dy * self.gamma.data
        dx = g - g.sum(-1, keepdims=True) / self.d_model
        dx -= n * (row_dots(g, n) / self.d_model)
        dx /= std
        return dx.reshape(shape).astype(self.dtype, copy=False)
