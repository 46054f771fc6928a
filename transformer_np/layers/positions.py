"""Positions: attention alone cannot tell the order of its inputs, so each position adds a vector of its own."""

import math

import numpy as np

from ..backend import array_module, widen
from ..checks import check_choice, check_floats, check_positive
from ..module import Module, Parameter


def sinusoids(length, d_model, offset=0):
    """Return the table PE (length, D) in float64, for positions offset .. offset+length-1.

        PE[pos, 2i] = sin(pos / 10000^(2i/D)),  PE[pos, 2i+1] = cos(pos / 10000^(2i/D))

    For an odd D the last pair has its sine only. Source: section 3.5.
    """
    pos = np.arange(offset, offset + length, dtype=np.float64)[:, None]  # (length, 1)
    frequency = 10000.0 ** (-np.arange(0, d_model, 2, dtype=np.float64) / d_model)  # (ceil(D/2),)
    table = np.empty((length, d_model))
    table[:, 0::2] = np.sin(pos * frequency)
    table[:, 1::2] = np.cos(pos * frequency[: d_model // 2])
    return table


def sinusoids_in_halves(length, d_model, offset=0):
    """Return the table (length, D) of the authors' own code: first all the sines, then all the cosines, in float64.

        PE[pos, i] = sin(pos / 10000^(i / (D/2 - 1))),  PE[pos, D/2 + i] = cos(the same),  i = 0 .. D/2 - 1

    The frequencies end at exactly 1/10000, the paper's just before. Source: tensor2tensor's
    get_timing_signal_1d, which OpenNMT-tf and CTranslate2 follow.
    """
    pos = np.arange(offset, offset + length, dtype=np.float64)[:, None]  # (length, 1)
    angle = pos * 10000.0 ** (-np.arange(d_model // 2) / (d_model // 2 - 1))  # (length, D/2)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


class SinusoidalPositions(Module):
    """y = x + PE[:T], with fixed sines and cosines of geometrically spaced wavelengths.

    Shapes: x (B, T, D), y (B, T, D). Nothing is learned, so lengths never seen in training work too; `max_len` sets a
    limit, None sets none. Backward: dx = dy.
    Trained weights belong to the table they were trained with. layout="interleaved" is the paper's, sines and cosines
    in turn; "halves" is that of its authors' code, see `sinusoids_in_halves`. `first` is the number of the first
    position: 0, and 1 in OpenNMT-tf and CTranslate2.
    Raises ValueError for a sequence that runs past `max_len`, an unknown layout, and an odd D or one below 4 in halves.
    Source: section 3.5. Derivation: docs/derivations/positions.md.
    """

    def __init__(self, d_model, max_len=None, *, layout="interleaved", first=0, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        check_positive(self, d_model=d_model, max_len=1 if max_len is None else max_len)
        check_choice(self, "layout", layout, ("interleaved", "halves"))
        if layout == "halves" and (d_model % 2 or d_model < 4):
            raise ValueError(f'SinusoidalPositions: layout="halves" needs an even d_model of at least 4, got {d_model}')
        if isinstance(first, bool) or not isinstance(first, (int, np.integer)) or first < 0:
            raise ValueError(f"SinusoidalPositions: first must be an integer of at least 0, got {first!r}")
        self.d_model, self.max_len, self.layout, self.first = d_model, max_len, layout, first
        self._table = np.empty((0, d_model))  # rows made so far; it grows with the longest sequence met

    def forward(self, x, offset=0):
        """x (B, T, D), whose first row stands at position `offset` -> x + PE (B, T, D)."""
        check_floats(self, "x", x, shape=(None, None, self.d_model))
        end = check_length(self, x.shape[1], offset)
        if end > len(self._table) or self._table.dtype != x.dtype or array_module(self._table) is not array_module(x):
            # Made in float64, rounded once: float32 sines of large positions would be off in the fourth digit.
            rows = max(end, 2 * len(self._table))  # a text that grows word by word then seldom needs a new table
            self._table = array_module(x).asarray(self.table(rows), dtype=x.dtype)
        y = x + self._table[offset:end]
        self.save_for_backward(output=y)
        return y

    def backward(self, dy):
        """dy (B, T, D) -> dx (B, T, D), an equal copy."""
        self.saved(dy)
        return dy.copy()

    def table(self, length):
        """Return the first `length` rows of PE, (length, D) in float64."""
        make = sinusoids if self.layout == "interleaved" else sinusoids_in_halves
        return make(length, self.d_model, self.first)


class LearnedPositions(Module):
    """y = x + P[:T], with one learned row per position.

    Shapes: x (B, T, D), P (max_len, D), y (B, T, D). Backward: dx = dy, dP[t] = the sum of dy[:, t] over the batch.
    Raises ValueError for a sequence that runs past `max_len`: there is no row for it.
    Source: section 3.5 (table 3, row E). Derivation: docs/derivations/positions.md.
    """

    def __init__(self, d_model, max_len, *, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        check_positive(self, d_model=d_model, max_len=max_len)
        self.d_model, self.max_len = d_model, max_len
        self.weight = Parameter((self.rng.standard_normal((max_len, d_model)) / math.sqrt(d_model)).astype(self.dtype))

    def forward(self, x, offset=0):
        """x (B, T, D), whose first row stands at position `offset` -> x + P (B, T, D)."""
        check_floats(self, "x", x, shape=(None, None, self.d_model), dtype=self.dtype)
        end = check_length(self, x.shape[1], offset)
        y = x + self.weight.data[offset:end]
        self.save_for_backward(offset, output=y)
        return y

    def backward(self, dy):
        """dy (B, T, D) -> dx (B, T, D), an equal copy; adds dP."""
        (offset,) = self.saved(dy)
        self.weight.grad[offset : offset + dy.shape[1]] += widen(dy).sum(0)
        return dy.copy()


def check_length(layer, length, offset):
    """Return offset + length; raise ValueError where that passes the layer's max_len.

    Without it a slice past the end would just be shorter, and a table of one row would broadcast: both silently wrong.
    """
    if offset < 0:
        raise ValueError(f"{type(layer).__name__}: offset must be at least 0, got {offset}")
    if layer.max_len is not None and offset + length > layer.max_len:
        raise ValueError(
            f"{type(layer).__name__}: length {length} from position {offset} passes max_len {layer.max_len}: "
            "shorten the sequence or build the model with a larger max_len"
        )
    return offset + length
