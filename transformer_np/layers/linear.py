"""The linear map: a learned matrix and a bias, applied to every position alike."""

import math

import numpy as np

from ..backend import array_module, widen
from ..checks import check_floats, check_positive
from ..module import Module, Parameter


def glorot_uniform(rng, d_in, d_out, dtype):
    """Draw a (d_in, d_out) matrix uniform in +-sqrt(6 / (d_in + d_out)).

    That keeps the variance of activations and of gradients about the same from layer to layer.

    Source: Glorot and Bengio 2010, equation 16.
    """
    limit = math.sqrt(6 / (d_in + d_out))
    return rng.uniform(-limit, limit, (d_in, d_out)).astype(dtype)


def column_sums(x):
    """Sum a matrix (N, D) over its rows to (D,), as a product with a row of ones: NumPy's `x.sum(0)` is slower."""
    rows = widen(x)
    return (array_module(x).ones(len(x), rows.dtype) @ rows).astype(x.dtype, copy=False)


class Linear(Module):
    """y = x W + b.

    Shapes: x (..., d_in), W (d_in, d_out), b (d_out,), y (..., d_out).
    Backward, with the leading axes of x and dy flattened to N rows:
        dx = dy Wᵀ,  dW = xᵀ dy,  db = sum of dy over the N rows.
    Raises ValueError for a wrong last axis, dtype, or upstream shape.
    Source: the projections of section 3.2.2 and equation 2. Derivation: docs/derivations/linear.md.
    """

    def __init__(self, d_in, d_out, bias=True, *, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        check_positive(self, d_in=d_in, d_out=d_out)
        self.d_in, self.d_out = d_in, d_out
        self.weight = Parameter(glorot_uniform(self.rng, d_in, d_out, self.dtype))
        self.bias = Parameter(np.zeros(d_out, self.dtype)) if bias else None

    def forward(self, x):
        """x (..., d_in) -> y (..., d_out)."""
        check_floats(self, "x", x, last=self.d_in, dtype=self.dtype)
        # One product over all rows: matmul of a 3-axis array would loop over the batch.
        y = x.reshape(-1, self.d_in) @ self.weight.data  # (N, d_out)
        if self.bias is not None:
            y += self.bias.data
        y = y.reshape(*x.shape[:-1], self.d_out).astype(x.dtype, copy=False)  # NumPy's product of bfloat16 is float32
        self.save_for_backward(x, output=y)
        return y

    def backward(self, dy):
        """dy (..., d_out) -> dx (..., d_in); adds dW and db."""
        (x,) = self.saved(dy)
        x_rows, dy_rows = x.reshape(-1, self.d_in), dy.reshape(-1, self.d_out)  # (N, d_in), (N, d_out)
        self.weight.accumulate(x_rows.T @ dy_rows)
        if self.bias is not None:
            self.bias.accumulate(column_sums(dy_rows))
        return (dy_rows @ self.weight.data.T).reshape(x.shape).astype(x.dtype, copy=False)
