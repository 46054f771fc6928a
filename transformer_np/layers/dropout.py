"""Dropout: during training, set a random part of the numbers to zero."""

import numpy as np

from .. import kernels
from ..backend import array_module
from ..checks import check_floats, check_real
from ..kernels import on_gpu
from ..module import Module


class Dropout(Module):
    """y = x * m / (1 - p), where each entry of the mask m is 0 with probability p, else 1; outside training y = x.

    p counts in steps of 1/65536: each entry is decided by 16 random bits, four of them to one draw of the generator.
    Scaling while training ("inverted" dropout) keeps the expected value, so that nothing needs scaling afterwards.
    Shapes: x any, y the same. Backward: dx = dy * m / (1 - p), with the very mask of the forward.
    Each Dropout has a random stream of its own; on a GPU every mask takes a key from it, for Philox, a generator that
    computes each number from its place. With `replay(True)` every later forward of the same shape draws the
    mask of the first one again, so the layer can be gradient-checked.
    Raises ValueError unless 0 <= p < 1.
    Source: section 5.4; Srivastava et al. 2014. Derivation: docs/derivations/residual.md.
    """

    def __init__(self, p=0.1, *, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        check_real(self, p=p)
        if not 0 <= p < 1:
            raise ValueError(f"Dropout: p must be at least 0 and less than 1, got {p!r}")
        self.p = p
        # A stream that no other layer draws from, of the fastest generator NumPy has.
        self.rng = np.random.Generator(np.random.SFC64(self.rng.bit_generator.seed_seq.spawn(1)[0]))
        self.n_dropped = round(p * 65536)  # of the 65536 values of 16 bits
        self.scale = 65536 / max(65536 - self.n_dropped, 1)
        self._replaying = False
        self._start = None  # where the stream stood at the first forward of a replay

    def replay(self, on=True):
        """Start (or end) drawing the same masks at every forward."""
        self._replaying, self._start = on, None

    def mark(self):
        """Return where the next forward begins in the random stream: what `rewind` takes."""
        return self.rng.bit_generator.state if self._start is None else self._start

    def rewind(self, mark):
        """Go back to a mark, so that the masks drawn since are drawn again; return where the stream stood."""
        now, self.rng.bit_generator.state = self.rng.bit_generator.state, mark
        return now

    def start(self):
        """Begin a forward of one or more masks, with `replay` on where the first forward began; return the mark."""
        mark = self.mark()
        if self._replaying:
            self._start = mark
            self.rewind(mark)
        return mark

    def scaled_mask(self, like):
        """Return m / (1 - p) in the shape, dtype and library of `like`: freshly drawn, or the replayed one."""
        if self._replaying:
            self.start()
        return self.draw_mask(like)

    @on_gpu(kernels.dropout_mask)
    def draw_mask(self, like):
        """The same, from where the stream stands."""
        mask = (self._random_bits(like) >= self.n_dropped).astype(like.dtype)
        mask *= self.scale
        return mask

    def _random_bits(self, like):
        """Draw a number from 0 to 65535 for every entry of `like`, on its device."""
        xp = array_module(like)
        stream = self.rng.bit_generator if xp is np else np.random.Philox(key=self.key())
        words = stream.random_raw(-(-like.size // 4))  # 64 bits each
        return xp.asarray(words.view(np.uint16)[: like.size].reshape(like.shape))

    def key(self):
        """Draw the key of the next mask on a GPU: 63 bits."""
        return int(self.rng.integers(2**63))

    @on_gpu(kernels.dropout)
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
