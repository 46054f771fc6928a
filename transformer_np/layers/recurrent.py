"""What the recurrent layers share: their weights, and the products that can be done for all steps at once.

Only the product with the previous state has to wait for the step before. The rest, x_t W_ih and all parameters'
gradients, is one big product over the whole sequence. Arrays inside are time-first, (T, B, ..), so that a step is one
contiguous piece.
"""

import math

import numpy as np

from ..backend import array_module, where
from ..checks import check_floats, check_positive
from ..module import Module, Parameter
from .linear import column_sums


class Recurrent(Module):
    """The base of RNN, LSTM and GRU, with G = `n_gates` numbers to compute for each hidden unit and step.

    Shapes: W_ih (d_in, G M), W_hh (M, G M), b_ih and b_hh (G M,), M = d_hidden. They are torch's weight_ih_l0 and
    weight_hh_l0 transposed, and its biases as they are; like there they start uniform in +-1/sqrt(M).
    `reverse` reads the sequence from its end, as the second half of a bidirectional layer does.
    """

    n_gates = 1

    def __init__(self, d_in, d_hidden, bias=True, reverse=False, *, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        check_positive(self, d_in=d_in, d_hidden=d_hidden)
        self.d_in, self.d_hidden, self.reverse = d_in, d_hidden, reverse
        width = self.n_gates * d_hidden
        self.weight_ih = self._draw(d_in, width)
        self.weight_hh = self._draw(d_hidden, width)
        self.bias_ih = self._draw(width) if bias else None
        self.bias_hh = self._draw(width) if bias else None

    def _draw(self, *shape):
        limit = 1 / math.sqrt(self.d_hidden)
        return Parameter(self.rng.uniform(-limit, limit, shape).astype(self.dtype))

    def check_inputs(self, x, mask, **states):
        """Raise for an x that is not (B, T, d_in), a mask that is not (B, T), a first state that is not (B, M)."""
        check_floats(self, "x", x, shape=(None, None, self.d_in), dtype=self.dtype)
        if mask is not None:
            check_sequence_mask(self, mask, x)
        self.check_states(x, **states)

    def check_states(self, like, **states):
        """Raise for a state, or a gradient of one, that is neither None nor of shape (B, M)."""
        for name, state in states.items():
            if state is not None:
                check_floats(self, name, state, shape=(len(like), self.d_hidden), dtype=self.dtype)

    def time_first(self, x):
        """(B, T, ..) -> a view (T, B, ..) in the order of the steps."""
        x = x.swapaxes(0, 1)
        return x[::-1] if self.reverse else x

    def batch_first(self, x):
        """(T, B, ..) in the order of the steps -> a copy (B, T, ..)."""
        return (x[::-1] if self.reverse else x).swapaxes(0, 1).copy()

    def mask_steps(self, mask):
        """(B, T) -> (T, B, 1) in the order of the steps; None stays None."""
        return None if mask is None else self.time_first(mask)[..., None]

    def new_states(self, x, first):
        """Return an empty (T + 1, B, M) with `first`, or zeros, as its first state."""
        states = array_module(x).empty((x.shape[1] + 1, len(x), self.d_hidden), x.dtype)
        states[0] = 0 if first is None else first
        return states

    def outputs(self, states, real):
        """Return y (B, T, M): the state after each step, 0 at steps that are not real; and a copy of the last state."""
        y = states[1:] if real is None else where(real, states[1:], 0)
        return self.batch_first(y), states[-1].copy()

    def project(self, x):
        """x (B, T, d_in) -> its rows (T*B, d_in), and x_t W_ih + b_ih for all steps (T, B, G M)."""
        rows = array_module(x).ascontiguousarray(self.time_first(x)).reshape(-1, self.d_in)
        gates = rows @ self.weight_ih.data
        if self.bias_ih is not None:
            gates += self.bias_ih.data
        return rows, gates.reshape(x.shape[1], len(x), -1)

    def finish_backward(self, rows, states, dgates, all_dw=None):
        """Add all parameters' gradients from those of the gates, (T, B, G M), and return dx (B, T, d_in).

        `all_dw` is the gradient of h W_hh + b_hh where that is not the one of x W_ih + b_ih.
        """
        length, batch_size, width = dgates.shape
        dgates = dgates.reshape(-1, width)  # (T*B, G M)
        all_dw = dgates if all_dw is None else all_dw.reshape(-1, width)
        self.weight_ih.accumulate(rows.T @ dgates)
        self.weight_hh.accumulate(states[:-1].reshape(-1, self.d_hidden).T @ all_dw)
        if self.bias_ih is not None:
            self.bias_ih.accumulate(column_sums(dgates))
            self.bias_hh.accumulate(column_sums(all_dw))
        in_order = (dgates @ self.weight_ih.data.T).reshape(length, batch_size, self.d_in)
        return self.batch_first(in_order).astype(rows.dtype, copy=False)  # NumPy's product of bfloat16 is float32


def check_sequence_mask(owner, mask, x):
    """Raise ValueError unless `mask` is boolean of shape (B, T), the first axes of x. True is a real token."""
    if getattr(mask, "dtype", np.dtype("O")).kind != "b" or mask.shape != x.shape[:2]:
        raise ValueError(
            f"{type(owner).__name__}: mask must be boolean of shape {x.shape[:2]}, True at real tokens, got "
            f"{getattr(mask, 'dtype', type(mask).__name__)} of shape {getattr(mask, 'shape', None)}"
        )
