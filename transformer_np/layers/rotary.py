"""Rotary positions: turn queries and keys by an angle that grows with the position, so that scores see distances."""

import functools
import math

import numpy as np

from ..backend import array_module, is_reading_late, read
from ..checks import check_choice, check_floats, check_positive, check_real, describe
from ..module import Module
from .positions import check_length

SCALINGS = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_len"),
}


def rotary_angles(positions, d_k, base=10000.0, scaling=None):
    """Return the angles m base^(-2i/K) for every position m and pair i: (..., K/2) in float64; scaled, if asked for."""
    frequency = base ** (-np.arange(0, d_k, 2, dtype=np.float64) / d_k)  # (K/2,)
    if scaling is not None:
        frequency = scale_frequencies(frequency, **scaling)
    return np.asarray(positions, np.float64)[..., None] * frequency


def scale_frequencies(frequency, kind, factor, low_freq_factor=1.0, high_freq_factor=4.0, original_max_len=8192):
    """Return slower frequencies (K/2,), so that texts `factor` times as long turn no further than those trained on.

    "linear" slows all of them down (Chen et al. 2023). "llama3" leaves alone those that turn at least high_freq_factor
    times within original_max_len tokens, since they tell near tokens apart; slows down those that turn less than
    low_freq_factor times; and goes over from one to the other in between (Llama 3.1's).
    """
    slow = frequency / factor
    if kind == "linear":
        return slow
    turns = original_max_len * frequency / (2 * math.pi)
    share = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clip(0, 1)
    return share * frequency + (1 - share) * slow


def check_scaling(owner, scaling):
    """Raise ValueError unless `scaling` is None or {"kind": .., and the numbers of that kind}."""
    if scaling is None:
        return
    kind = scaling.get("kind") if isinstance(scaling, dict) else None
    if kind not in SCALINGS:
        raise ValueError(
            f"{type(owner).__name__}: scaling must be None or a dict whose kind is one of "
            f"{', '.join(map(repr, SCALINGS))}, got {scaling!r:.80}"
        )
    numbers = {name: value for name, value in scaling.items() if name != "kind"}
    if set(numbers) != set(SCALINGS[kind]):
        raise ValueError(
            f"{type(owner).__name__}: scaling of the kind {kind!r} takes {', '.join(SCALINGS[kind])}, "
            f"got {', '.join(numbers) or 'nothing'}"
        )
    check_real(owner, **numbers)
    if not numbers["factor"] >= 1:
        raise ValueError(f"{type(owner).__name__}: the factor of scaling must be at least 1, got {numbers['factor']!r}")
    if kind == "llama3" and not 0 < numbers["low_freq_factor"] < numbers["high_freq_factor"]:
        raise ValueError(
            f"{type(owner).__name__}: scaling needs 0 < low_freq_factor < high_freq_factor, got "
            f"{numbers['low_freq_factor']!r} and {numbers['high_freq_factor']!r}"
        )


def pairs(x, layout):
    """Return views of the first and of the second number of each pair: x (..., K) -> two of (..., K/2)."""
    if layout == "interleaved":
        return x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def rotate(x, cos, sin, layout):
    """Turn each pair of x (..., K) by the angle whose cosine and sine are given, (..., K/2) each."""
    y = array_module(x).empty_like(x)
    (x1, x2), (y1, y2) = pairs(x, layout), pairs(y, layout)
    y1[...] = x1 * cos - x2 * sin
    y2[...] = x1 * sin + x2 * cos
    return y


class RotaryPositions(Module):
    """Each pair of features (x1, x2) at position m turns by the angle a = m base^(-2i/K), i the number of the pair:

        y1 = x1 cos a - x2 sin a,  y2 = x1 sin a + x2 cos a

    Turned queries and keys have the dot product q · R(n - m) k: a score depends on the distance of the positions m
    and n, not on where they are. Nothing is learned.
    layout="interleaved" pairs features (0, 1), (2, 3) .. (the paper, GPT-J, llama2.c); "halves" pairs (0, K/2),
    (1, K/2 + 1) .. (GPT-NeoX, Hugging Face's Llama). They differ by a fixed order of the features only, so weights
    belong to the layout they were trained with.
    scaling: for texts longer than those trained on, {"kind": "linear", "factor": 4}, or Llama 3.1's (see
    scale_frequencies): {"kind": "llama3", "factor": .., "low_freq_factor": .., "high_freq_factor": ..,
    "original_max_len": ..}.
    Shapes: x (..., T, K) with K even, y the same.
    Backward: a rotation's transpose turns back:  dx1 = dy1 cos a + dy2 sin a,  dx2 = -dy1 sin a + dy2 cos a.
    Raises ValueError for an odd d_k, an unknown layout or scaling, a wrong last axis, and positions past `max_len`
    (None: no limit).
    Source: Su et al. 2021, equation 34. Derivation: docs/derivations/rotary.md.
    """

    def __init__(
        self, d_k, layout="interleaved", *, base=10000.0, scaling=None, max_len=None, seed=None, dtype="float32"
    ):
        super().__init__(seed, dtype)
        check_positive(self, d_k=d_k, max_len=1 if max_len is None else max_len)
        check_choice(self, "layout", layout, ("interleaved", "halves"))
        if d_k % 2:
            raise ValueError(f"RotaryPositions: d_k must be even, since features turn in pairs, got {d_k}")
        check_real(self, base=base)
        if not base > 1:
            raise ValueError(f"RotaryPositions: base must be greater than 1, got {base!r}")
        check_scaling(self, scaling)
        self.d_k, self.layout, self.base, self.scaling, self.max_len = d_k, layout, base, scaling, max_len
        self._cos = self._sin = np.empty((0, d_k // 2))  # rows made so far; they grow with the largest position met

    def forward(self, x, offset=0, positions=None):
        """x (..., T, K), whose first row stands at position `offset` -> y (..., T, K).

        `positions`, integers (T,) or broadcastable to x's axes before K, say it row by row instead: with sentences
        padded on the left, for example, (B, 1, T) for x (B, H, T, K).
        """
        check_floats(self, "x", x, last=self.d_k, min_ndim=2)
        if positions is None:
            end = check_length(self, x.shape[-2], offset)
            rows = slice(offset, end)  # of the table
        else:
            rows, end = positions, self.check_positions(positions, x.shape[:-1])
        self._grow_table(end, x)
        cos, sin = self._cos[rows], self._sin[rows]  # (..., T, K/2)
        y = rotate(x, cos, sin, self.layout)
        self.save_for_backward(cos, sin, output=y)
        return y

    def backward(self, dy):
        """dy (..., T, K) -> dx (..., T, K)."""
        cos, sin = self.saved(dy)
        return rotate(dy, cos, -sin, self.layout)

    def check_positions(self, positions, rows):
        """Return the largest position plus one; raise unless they are integers that broadcast to x's axes `rows`."""
        if getattr(positions, "dtype", np.dtype("O")).kind not in "iu" or positions.size == 0:
            raise ValueError(f"RotaryPositions: positions must be an array of integers, got {describe(positions)}")
        if positions.ndim > len(rows) or any(
            p not in (1, n) for p, n in zip(positions.shape[::-1], rows[::-1], strict=False)
        ):
            raise ValueError(f"RotaryPositions: positions must broadcast to {rows}, got {describe(positions)}")
        lowest, highest = positions.min(), positions.max()
        if not is_reading_late():
            return self._end(None, int(lowest), int(highest))
        end = max(len(self._cos), rows[-1])  # what padding leaves, and what was asked for before
        read(functools.partial(self._end, end), lowest, highest)
        return end

    def _end(self, expected, first, last):
        """Return the largest position plus one; raise where that is past max_len, or past what was expected."""
        end = check_length(self, int(last - first + 1), int(first))
        if expected is not None and end > expected:
            raise ValueError(f"RotaryPositions: on a GPU positions may be at most {expected - 1} here, got {end - 1}")
        return end

    def _grow_table(self, end, x):
        xp = array_module(x)
        if end > len(self._cos) or self._cos.dtype != x.dtype or array_module(self._cos) is not xp:
            # Made in float64, rounded once: float32 angles of large positions would be off in the fourth digit.
            angles = rotary_angles(np.arange(max(end, 2 * len(self._cos))), self.d_k, self.base, self.scaling)
            self._cos = xp.asarray(np.cos(angles), dtype=x.dtype)
            self._sin = xp.asarray(np.sin(angles), dtype=x.dtype)
