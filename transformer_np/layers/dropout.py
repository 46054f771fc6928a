"""Dropout: during training, set a random part of the numbers to zero."""

import numpy as np

from ..backend import array_module
from ..checks import check_floats, check_real
from ..module import Module


class Dropout(Module):
    """y = x * m / (1 - p), where each entry of the mask m is 0 with probability p, else 1; outside training y = x.

    Scaling while training ("inverted" dropout) keeps the expected value, so that nothing needs scaling afterwards.
    Shapes: x any, y the same. Backward: dx = dy * m / (1 - p), with the very mask of the forward.
    Each Dropout has a random stream of its own. With `replay(True)` the next mask is used again by every later
    forward of the same shape, so the layer can be gradient-checked.
    Raises ValueError unless 0 <= p < 1.
    Source: section 5.4; Srivastava et al. 2014. Derivation: docs/derivations/residual.md.
    """

    def __init__(self, p=0.1, *, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        check_real(self, p=p)
        if not 0 <= p < 1:
            raise ValueError(f"Dropout: p must be at least 0 and less than 1, got {p!r}")
        self.p = p
        self.rng = self.rng.spawn(1)[0]  # a stream that no other layer draws from
        self._gpu_rng = None
        self._replaying = False
        self._mask = None

    def replay(self, on=True):
        """Start (or end) using one mask again and again."""
        self._replaying, self._mask = on, None

    def scaled_mask(self, like):
        """Return m / (1 - p) in the shape, dtype and library of `like`: freshly drawn, or the replayed one."""
        if self._replaying and self._mask is not None and self._mask.shape == like.shape:
            return self._mask.astype(like.dtype, copy=False)
        mask = (self._uniform(like) >= self.p).astype(like.dtype)
        mask *= 1 / (1 - self.p)
        if self._replaying:
            self._mask = mask
        return mask

    def _uniform(self, like):
        """Draw float32 numbers from [0, 1) on the device of `like`."""
        xp = array_module(like)
        if xp is np:
            return self.rng.random(like.shape, np.float32)
        if self._gpu_rng is None:
            self._gpu_rng = xp.random.default_rng(int(self.rng.integers(2**63)))
        return self._gpu_rng.random(like.shape, np.float32)

    def forward(self, x):
        """x (...) -> y (...)."""
        check_floats(self, "x", x, min_ndim=0)
        mask = self.scaled_mask(x) if self.training and self.p > 0 else None
        y = x.copy() if mask is None else x * mask
        self.save_for_backward(mask, output=y)
        return y

    def backward(self, dy):
        """dy (...) -> dx (...)."""
        (mask,) = self.saved(dy)
        return dy.copy() if mask is None else dy * mask
