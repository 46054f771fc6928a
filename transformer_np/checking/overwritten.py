"""A gradient that backward sets more than once, each time replacing what was there: `=` where `+=` is needed.

It is the mistake of a value that is used in several places. No look at the finished gradient can tell it, so backward
runs once more and every array that it stores is noted: their sum is then the right gradient.
"""

from contextlib import contextmanager

import numpy as np

from ..backend import to_numpy
from .evidence import Diagnosis
from .trees import differentiable


def overwritten(trial, watched, array, dys):
    """Return [a certain Diagnosis] if the arrays that backward stored for a parameter sum to its right gradient."""
    place = None if watched.slot is None or len(watched.slot.grads) != 1 else watched.slot.grads[0]
    if place is None or place.key is not None or array.analytic is None or array.numeric is None:
        return []
    if not hasattr(place.holder, "__dict__"):
        return []  # of a type that Python code cannot listen to
    trial.clear_gradients()
    trial.forward()
    with stored(place.holder, place.attribute) as arrays:
        trial.backward(dys)
    parts = [part for part in arrays if part.shape == array.numeric.shape]
    if len(parts) < 2 or not np.array_equal(parts[-1], array.analytic):
        return []
    scale = np.abs(array.numeric).max()
    if np.abs(sum(parts) - array.numeric).max() > 2 * np.max(array.bar) + 1e-9 * scale:
        return []
    n, name = len(parts), watched.name
    return [
        Diagnosis(
            "missing path",
            "certain",
            name,
            f"backward stores the gradient of the parameter {name} {n} times, and only the last is left",
            f"each one replaces the one before; the sum of all {n} is the right gradient",
            f"{name} is used {n} times in forward: its gradient is the sum over the uses",
            f"add to {place.attribute} with += instead of setting it, and clear it before backward",
        )
    ]


@contextmanager
def stored(holder, attribute):
    """Give a list that fills with a copy of every array that is stored in an attribute of holder meanwhile."""
    cls, seen = type(holder), []
    before, own = cls.__setattr__, "__setattr__" in vars(cls)

    def store(self, name, value):
        if self is holder and name == attribute and differentiable(value):
            seen.append(np.array(to_numpy(value), float))
        before(self, name, value)

    cls.__setattr__ = store
    try:
        yield seen
    finally:
        if own:
            cls.__setattr__ = before
        else:
            del cls.__setattr__
