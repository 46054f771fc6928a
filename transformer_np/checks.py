"""Argument checks shared by every layer: each says which layer, which argument, what came and what was expected.

They run before a layer changes anything, so a caught error leaves the layer as it was.
"""

import numbers
from collections.abc import Mapping

import numpy as np

from .backend import array_module, is_float, read


def describe(value):
    """Say in a few words what `value` is: dtype and shape of an array, else its type and text."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype.name} of shape {tuple(value.shape)}"
    return f"{type(value).__name__} {value!r:.60}"


def argument(owner, name):
    """Say which argument of which layer it is about."""
    return f"{type(owner).__name__}: {name}"


def has_shape(x, shape):
    """Say whether `x` has that shape, in which None stands for any size."""
    sizes = x.shape
    if len(sizes) != len(shape):
        return False
    # Written out, since every layer comes by here and all(..) takes twice as long.
    for n, got in zip(shape, sizes, strict=True):  # noqa: SIM110
        if n is not None and n != got:
            return False
    return True


def check_floats(owner, name, x, shape=None, last=None, min_ndim=1, dtype=None):
    """Raise unless `x` is a non-empty floating-point array of the given shape, last axis, or least number of axes.

    `shape` may hold None where any size will do. With `dtype` the array must have just that type: nothing here ever
    converts, because a float32 model that meets a float64 array would silently become slow and big.
    Raises TypeError for something that is no array, ValueError for the rest.
    """
    # Every layer of every step comes by here: words are made up only where something is wrong.
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        raise TypeError(f"{argument(owner, name)} must be an array, got {describe(x)}")
    if x.dtype.kind != "f" and not is_float(x):
        raise ValueError(f"{argument(owner, name)} must hold floating-point numbers, got {describe(x)}")
    if x.size == 0:
        raise ValueError(f"{argument(owner, name)} is empty: got {describe(x)}")
    if shape is not None and not has_shape(x, shape):
        expected = "(" + ", ".join("any" if n is None else str(n) for n in shape) + ")"
        raise ValueError(f"{argument(owner, name)} must have shape {expected}, got {describe(x)}")
    if x.ndim < min_ndim:
        raise ValueError(f"{argument(owner, name)} must have at least {min_ndim} axes, got {describe(x)}")
    if last is not None and x.shape[-1] != last:
        raise ValueError(f"{argument(owner, name)} must have last axis {last}, got {describe(x)}")
    if dtype is not None and x.dtype != dtype:
        raise ValueError(
            f"{argument(owner, name)} is {x.dtype.name} but the layer is {np.dtype(dtype).name}: convert one of them "
            f'(x.astype("{np.dtype(dtype).name}") or layer.astype("{x.dtype.name}"))'
        )


def check_ids(owner, name, ids, size, ndim=None):
    """Raise unless `ids` is a non-empty integer array with all values in 0 .. size-1.

    Raises TypeError (no array), ValueError (wrong dtype or number of axes, or empty), IndexError (out of range: a
    negative id would otherwise count from the end, silently).
    """
    who = argument(owner, name)
    if not hasattr(ids, "shape") or not hasattr(ids, "dtype"):
        raise TypeError(f"{who} must be an integer array, got {describe(ids)}")
    if ids.dtype.kind not in "iu":
        raise ValueError(f"{who} must hold integers, got {describe(ids)}")
    if ndim is not None and ids.ndim != ndim:
        raise ValueError(f"{who} must have {ndim} axes, got {describe(ids)}")
    if ids.size == 0:
        raise ValueError(f"{who} is empty: got {describe(ids)}")

    def check_range(low, high):
        if low < 0 or high >= size:
            bad = int(low if low < 0 else high)
            raise IndexError(f"{who}: id {bad} is outside 0..{size - 1} (the vocabulary has {size} entries)")

    read(check_range, ids.min(), ids.max())


def is_id(value, size):
    """Say whether `value` is an integer in 0 .. size-1; a negative one would count from the end, silently."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and 0 <= value < size


def check_mask(owner, mask, shape, name="mask"):
    """Raise ValueError unless `mask` is boolean and broadcasts to `shape` = (B, H, T, S), True meaning "may attend".

    Two or four axes are accepted, (T, S) or (B or 1, H or 1, T or 1, S): with three, a (B, T, S) mask would be read as
    (H, T, S) wherever B equals H. A float or integer mask of zeros and ones is refused: one library adds such a mask,
    another multiplies, and a third means the opposite by a 1.
    """
    who = argument(owner, name)
    if not hasattr(mask, "shape") or not hasattr(mask, "dtype"):
        raise TypeError(f"{who} must be a boolean array, got {describe(mask)}")
    if mask.dtype.kind != "b":
        raise ValueError(f"{who} must be boolean with True where a query may attend, got {describe(mask)}")
    if mask.ndim not in (2, len(shape)):
        raise ValueError(
            f"{who} must have 2 axes (T, S) or {len(shape)} axes, got {describe(mask)}; "
            "for one mask a sentence write mask[:, None]"
        )
    if any(m not in (1, n) for m, n in zip(mask.shape[::-1], tuple(shape)[::-1], strict=False)):
        raise ValueError(f"{who} must broadcast to {tuple(shape)}, got {describe(mask)}")


def check_same_device(owner, **arrays):
    """Raise ValueError where NumPy and CuPy arrays meet in one call."""
    modules = {name: array_module(a).__name__ for name, a in arrays.items() if a is not None}
    if len(set(modules.values())) > 1:
        raise ValueError(f"{type(owner).__name__}: arrays live on different devices: {modules}")


def check_positive(owner, **sizes):
    """Raise ValueError unless every named size is an integer of at least 1."""
    for name, n in sizes.items():
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
            raise ValueError(f"{type(owner).__name__}: {name} must be an integer of at least 1, got {n!r}")


def check_real(owner, **values):
    """Raise TypeError unless every named value is a real number."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError(f"{type(owner).__name__}: {name} must be a number, got {describe(value)}")


def check_choice(owner, name, value, choices):
    """Raise ValueError unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(
            f"{type(owner).__name__}: {name} must be one of {', '.join(map(repr, choices))}, got {value!r}"
        )


SHOWN = 4  # names in a message: a model has hundreds


def check_dict(who, state):
    """Raise TypeError unless `state` is a dict."""
    if not isinstance(state, Mapping):
        raise TypeError(f"{who}: state must be a dict as from state_dict(), got {describe(state)}")


def check_names(who, state, expected):
    """Raise ValueError unless the names in `state` are just the expected ones, TypeError where it is no dict."""
    check_dict(who, state)
    missing, unexpected = sorted(set(expected) - state.keys()), sorted(state.keys() - set(expected))
    if missing or unexpected:
        raise ValueError(f"{who}: missing {_some(missing)}, unexpected {_some(unexpected)}")


def check_array(who, name, value, shape, dtype):
    """Raise ValueError unless `value` is an array of just this shape and dtype."""
    if not hasattr(value, "shape") or tuple(value.shape) != tuple(shape) or value.dtype != dtype:
        raise ValueError(f"{who}: {name} must be {np.dtype(dtype).name} of shape {tuple(shape)}, got {describe(value)}")


def check_number(who, name, value, least, expected, kinds="iuf"):
    """Raise ValueError unless `value` is a number, or an array of just one, from `least` up to infinity (exclusive).

    `expected` says the same in words; `kinds` are those of NumPy's dtypes that will do.
    """
    array = np.asarray(value)
    if array.shape != () or array.dtype.kind not in kinds or not least <= array < np.inf:
        raise ValueError(f"{who}: {name} must be {expected}, got {describe(value)}")


def _some(names):
    """The first few of the names, and how many there are more."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{names[:SHOWN]}{more}" if names else "nothing"
