"""ALiBi, attention with linear biases: a fixed penalty on every score that grows with the distance of the key."""

import math

import numpy as np

from ..checks import check_positive
from ..module import Module
from .positions import check_length


def alibi_slopes(n_heads):
    """Return the slopes m_1 .. m_H: for H a power of two 2^(-8/H), 2^(-16/H) .. 2^(-8).

    For another H those of the power of two below it, then every second one of the power of two above, as in the
    authors' code.
    """
    if n_heads & (n_heads - 1) == 0:
        return 2.0 ** (-8 / n_heads * np.arange(1, n_heads + 1))
    below = 2 ** math.floor(math.log2(n_heads))
    return np.concatenate([alibi_slopes(below), alibi_slopes(2 * below)[0::2][: n_heads - below]])


class ALiBi(Module):
    """bias[h, t, s] = -m_h |t - s|, to be added to the scores of head h before the softmax.

    Heads with a large slope m_h look near, those with a small one far. Nothing is learned, no other positions are
    needed, and sequences longer than those of training keep working.
    Shapes: bias (1, H, T, S). Backward returns None: there are neither array inputs nor parameters.
    Raises ValueError for sizes and lengths that do not fit.
    Source: Press et al. 2021, section 3.
    """

    def __init__(self, n_heads, *, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        check_positive(self, n_heads=n_heads)
        self.n_heads, self.max_len = n_heads, None

    def forward(self, n_queries, n_keys, offset=0, xp=np):
        """T queries from position `offset` on, S keys from position 0 on -> bias (1, H, T, S), made by `xp`."""
        check_positive(self, n_queries=n_queries, n_keys=n_keys)
        check_length(self, n_queries, offset)
        distance = abs(np.arange(n_keys) - (offset + np.arange(n_queries))[:, None])  # (T, S)
        bias = xp.asarray((-alibi_slopes(self.n_heads)[:, None, None] * distance)[None], dtype=self.dtype)
        self.save_for_backward(output=bias)
        return bias

    def backward(self, dbias):
        """dbias (1, H, T, S) -> None: positions have no gradient."""
        self.saved(dbias)
        return None
