"""Softmax: turn scores into weights that are positive and add up to 1."""

from .. import kernels
from ..backend import array_module, is_half, row_dots, widen
from ..checks import check_floats, check_mask
from ..kernels import on_gpu
from ..module import Module


def short_rows(x):
    """Say whether rows are so short that NumPy, which starts anew for each, spends most of its time on starting."""
    return x.shape[-1] <= 48 and x.size >= 2048 and array_module(x).__name__ == "numpy"


def row_max(x):
    """Return `x.max(-1, keepdims=True)`, (..., S) -> (..., 1): of short rows in a third of the time."""
    if not short_rows(x):
        return x.max(-1, keepdims=True)
    columns = x.reshape(-1, x.shape[-1]).T.copy()  # (S, N): the largest of all columns at once, going down
    return columns.max(0).reshape(*x.shape[:-1], 1)


def row_sums(x):
    """Return `x.sum(-1, keepdims=True)`, (..., S) -> (..., 1): of short rows as a product with a column of ones."""
    if not short_rows(x):
        return x.sum(-1, keepdims=True)
    ones = array_module(x).ones(x.shape[-1], x.dtype)
    return (x.reshape(-1, x.shape[-1]) @ ones).reshape(*x.shape[:-1], 1)


def softmax(scores, mask=None):
    """Return exp(scores) over its sum along the last axis; 0 where the boolean `mask` is False.

    Shapes: scores (..., S), mask broadcastable to it, result (..., S). The mask selects, so a masked score has no say
    at all; a row that is masked throughout gives zeros.
    """
    return softmax_in_place(scores.copy(), mask)


@on_gpu(kernels.softmax_in_place)
def softmax_in_place(scores, mask=None):
    """The same, written over `scores`, which is returned."""
    if is_half(scores):
        scores[...] = softmax_in_place(widen(scores), mask)
        return scores
    xp = array_module(scores)
    if mask is not None:
        xp.copyto(scores, -xp.inf, where=~mask)
    top = row_max(scores)  # (..., 1); subtracting it leaves the result the same and keeps exp from overflowing
    if mask is not None:
        xp.copyto(top, 0, where=top == -xp.inf)  # a row masked throughout: -inf - 0 is well defined, -inf - -inf is not
    scores -= top
    xp.exp(scores, out=scores)
    total = row_sums(scores)  # (..., 1)
    if mask is not None:
        xp.copyto(total, 1, where=total == 0)
    scores /= total
    return scores


@on_gpu(kernels.softmax_backward)
def softmax_backward(dy, y, out=None):
    """Return dx = y * (dy - sum(dy * y)), the sum along the last axis; `out` may be `dy` itself.

    Each output depends on each score of its row: dy_i/dx_j = y_i (delta_ij - y_j). Masked entries have y = 0, so dx =
    0.
    """
    if is_half(y):
        dx = softmax_backward(widen(dy), widen(y)).astype(y.dtype)
        if out is not None:
            out[...] = dx
        return dx if out is None else out
    dx = array_module(y).subtract(dy, row_dots(dy, y), out=out)
    dx *= y
    return dx


class Softmax(Module):
    """y_i = exp(x_i) / sum_j exp(x_j), along the last axis; masked entries are 0.

    Shapes: x (..., S), mask boolean and broadcastable to it (True = takes part), y (..., S).
    Backward: dx = y * (dy - sum(dy * y)).
    A row with nothing to choose from gives zeros and zero gradients.
    Source: equation 1. Derivation: docs/derivations/softmax.md.
    """

    def forward(self, x, mask=None):
        """x (..., S) -> y (..., S)."""
        check_floats(self, "x", x)
        if mask is not None:
            check_mask(self, mask, x.shape)
        y = softmax(x, mask)
        self.save_for_backward(y, output=y)
        return y

    def backward(self, dy):
        """dy (..., S) -> dx (..., S)."""
        (y,) = self.saved(dy)
        return softmax_backward(dy, y)
