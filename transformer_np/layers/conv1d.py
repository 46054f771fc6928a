"""One-dimensional convolution over the positions: every output is a linear map of a few neighbours."""

import math

import numpy as np

from ..backend import array_module, where
from ..checks import check_choice, check_floats, check_positive
from ..module import Module, Parameter
from .linear import column_sums
from .recurrent import check_sequence_mask


class Conv1D(Module):
    """y_t = b + sum over j = 0 .. k-1 of x_{t + j * dilation - left} W_j, with x = 0 outside the sequence.

    padding="causal": left = (k - 1) * dilation, so y_t sees no position after t. padding="same": half of that, rounded
    down, so the window is centred (for an even k it reaches one further to the right). The length stays T.
    Shapes: x (B, T, d_in), W (k, d_in, d_out), b (d_out,), y (B, T, d_out), mask (B, T).
    Backward, over the positions that exist:
        dx_u = sum over j of dy_{u - j * dilation + left} W_jᵀ,
        dW_j = sum over the batch and t of x_{t + j * dilation - left}ᵀ dy_t,  db = sum of dy.
    `mask` is True at real tokens; the others count as 0, like the positions outside, and get no gradient.
    Raises ValueError for sizes, shapes, dtypes and options that do not fit.
    Source: section 4 and table 1; LeCun et al. 1989; causal and dilated: van den Oord et al. 2016.
    Derivation: docs/derivations/conv1d.md.
    """

    def __init__(
        self, d_in, d_out, kernel_size, padding="causal", *, dilation=1, bias=True, seed=None, dtype="float32"
    ):
        super().__init__(seed, dtype)
        check_positive(self, d_in=d_in, d_out=d_out, kernel_size=kernel_size, dilation=dilation)
        check_choice(self, "padding", padding, ("causal", "same"))
        self.d_in, self.d_out, self.kernel_size, self.dilation = d_in, d_out, kernel_size, dilation
        self.reach = (kernel_size - 1) * dilation  # zeros around the sequence, both sides together
        self.left = self.reach if padding == "causal" else self.reach // 2
        limit = math.sqrt(6 / (kernel_size * (d_in + d_out)))  # Glorot and Bengio 2010, for k d_in inputs, k d_out uses
        self.weight = Parameter(self.rng.uniform(-limit, limit, (kernel_size, d_in, d_out)).astype(self.dtype))
        self.bias = Parameter(np.zeros(d_out, self.dtype)) if bias else None

    def forward(self, x, mask=None):
        """x (B, T, d_in) -> y (B, T, d_out)."""
        check_floats(self, "x", x, shape=(None, None, self.d_in), dtype=self.dtype)
        if mask is not None:
            check_sequence_mask(self, mask, x)
            x = where(mask[..., None], x, 0)
        # All neighbours of a position side by side: one product for the k matrices.
        neighbours = self._neighbours(x)  # (B*T, k*d_in)
        y = neighbours @ self.weight.data.reshape(-1, self.d_out)  # (B*T, d_out)
        if self.bias is not None:
            y += self.bias.data
        y = y.reshape(*x.shape[:2], self.d_out).astype(x.dtype, copy=False)
        self.save_for_backward(x, mask, output=y)
        return y

    def backward(self, dy):
        """dy (B, T, d_out) -> dx (B, T, d_in); adds dW and db."""
        x, mask = self.saved(dy)
        b, length, _ = dy.shape
        dy = dy.reshape(-1, self.d_out)  # (B*T, d_out)
        neighbours = self._neighbours(x)
        self.weight.accumulate((neighbours.T @ dy).reshape(self.weight.shape))
        if self.bias is not None:
            self.bias.accumulate(column_sums(dy))
        dneighbours = dy @ self.weight.data.reshape(-1, self.d_out).T  # (B*T, k*d_in)
        each = dneighbours.reshape(b, length, self.kernel_size, self.d_in)
        gathered = array_module(dy).zeros((b, length + self.reach, self.d_in), dy.dtype)
        for j in range(self.kernel_size):
            gathered[:, j * self.dilation : j * self.dilation + length] += each[:, :, j]
        dx = gathered[:, self.left : self.left + length]  # (B, T, d_in)
        return dx.copy() if mask is None else dx * mask[..., None]

    def _neighbours(self, x):
        """(B, T, d_in) -> (B*T, k*d_in): for every position the k inputs that its output is made of."""
        b, length, _ = x.shape
        xp = array_module(x)
        padded = xp.zeros((b, length + self.reach, self.d_in), x.dtype)
        padded[:, self.left : self.left + length] = x
        starts = range(0, self.reach + 1, self.dilation)
        return xp.concatenate([padded[:, s : s + length] for s in starts], axis=-1).reshape(b * length, -1)
