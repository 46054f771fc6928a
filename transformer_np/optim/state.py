"""What comes in a saved state: checked by name, kind and size before anything takes it over."""

from collections.abc import Mapping

import numpy as np

from ..checks import describe

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
