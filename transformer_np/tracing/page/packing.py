"""Arrays to text: five decimal digits a number, in byte planes, compressed. What the page of a trace carries.

The first four digits of every number are exact: they are those of `format(x, ".4g")`. A float32 would take a third
more, and the page has to stay small enough to be mailed.
"""

import base64
import zlib

import numpy as np

ZERO, NAN, INFINITE = 0, 1, 2  # mantissas below 10000 stand for what has no five digits


def digits(values):
    """Split floats into (sign 0 or 1, mantissa 10000 .. 99999, exponent): x = ± mantissa * 10^(exponent - 4).

    The mantissa is rounded to the nearest, except where rounding it once more, to four digits, would give another
    result than rounding the number itself, ties to even as Python has it: there its fifth digit gives way.
    """
    x = np.abs(np.asarray(values, np.float64).reshape(-1))
    finite = np.isfinite(x) & (x > 0)
    safe = np.where(finite, x, 1.0)
    exponent = np.floor(np.log10(safe)).astype(np.int64)
    scaled = _shift(safe, 4 - exponent)
    for step, wrong in ((-1, scaled < 10000), (1, scaled >= 100000)):  # log10 may be off by one next to a power of ten
        exponent += step * wrong
        scaled = np.where(wrong, _shift(safe, 4 - exponent), scaled)
    mantissa = np.rint(scaled).astype(np.int64)
    four = np.rint(scaled / 10).astype(np.int64)
    for i in np.flatnonzero(np.abs(scaled / 10 % 1 - 0.5) < 1e-9):  # next to a tie the product's own rounding decides
        first, power = f"{safe[i]:.3e}".split("e")
        four[i] = int(first.replace(".", "")) * 10 ** (int(power) - exponent[i])
    shown = (mantissa + 5) // 10  # what the page makes of the five digits
    mantissa += np.sign(four - shown)
    over = mantissa >= 100000
    mantissa, exponent = np.where(over, mantissa // 10, mantissa), exponent + over
    mantissa = np.where(finite, mantissa, np.where(x == 0, ZERO, np.where(np.isnan(x), NAN, INFINITE)))
    return np.signbit(np.asarray(values, np.float64).reshape(-1)) & (mantissa != NAN), mantissa, exponent * finite


def _shift(x, places):
    """Return x * 10^places. Powers up to 22 are exact in float64, so a product that is a whole number is exact too."""
    near = np.abs(places) <= 22
    power = 10.0 ** np.where(near, np.abs(places), 0)
    out = np.where(places >= 0, x * power, x / power)
    if not near.all():
        out[~near] = [_shift_far(v, int(p)) for v, p in zip(x[~near], places[~near], strict=True)]
    return out


def _shift_far(value, places):
    """The same for one number, by whole numbers: 10^places itself may not be a float."""
    numerator, denominator = float(value).as_integer_ratio()
    return numerator * 10**places / denominator if places >= 0 else numerator / (denominator * 10**-places)


class Pack:
    """Arrays gathered for one page, each distinct content once. `add` returns where an array is; `text` is them all."""

    def __init__(self):
        self.size, self._where, self._planes = 0, {}, [[], [], [], [], []]

    def add(self, array):
        """Add an array of numbers or booleans; return the index of its first number."""
        array = np.ascontiguousarray(array)
        key = (array.dtype.str, array.tobytes())
        if key not in self._where:
            self._where[key] = self.size
            self._append(array)
        return self._where[key]

    def _append(self, array):
        sign, mantissa, exponent = digits(array)
        exponent = exponent.astype("<i2").view(np.uint8).reshape(-1, 2)
        high = (mantissa >> 16) | (sign.astype(np.int64) << 7)
        columns = (mantissa & 255, mantissa >> 8 & 255, high, exponent[:, 0], exponent[:, 1])
        for plane, column in zip(self._planes, columns, strict=True):
            plane.append(column.astype(np.uint8))
        self.size += array.size

    def text(self):
        """Return everything as base64 of zlib: five planes of `size` bytes, mantissa low to high, then exponent."""
        return compress(b"".join(column.tobytes() for plane in self._planes for column in plane))


def compress(content):
    """Return bytes as the base64 of their zlib compression."""
    return base64.b64encode(zlib.compress(content, 6)).decode("ascii")
