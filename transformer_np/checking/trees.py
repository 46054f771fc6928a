"""Nested tuples, lists and dictionaries of arrays, as forward takes and returns them."""

import numpy as np

from ..backend import array_module, is_float


def is_array(value):
    """Say whether the value is a NumPy or CuPy array (a NumPy scalar is not)."""
    return isinstance(value, array_module(value).ndarray)


def leaves(tree, name=""):
    """Return the arrays of a nested structure as (name, array) pairs, in order; whatever is no array is left out."""
    if is_array(tree):
        return [(name, tree)]
    if isinstance(tree, (tuple, list)):
        return [pair for i, part in enumerate(tree) for pair in leaves(part, f"{name}[{i}]")]
    if isinstance(tree, dict):
        return [pair for key, part in tree.items() for pair in leaves(part, f"{name}.{key}" if name else str(key))]
    return []


def rebuild(tree, arrays):
    """Return the structure of `tree` with its arrays replaced, in order, by those of the iterator `arrays`."""
    if is_array(tree):
        return next(arrays)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(rebuild(part, arrays) for part in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(rebuild(part, arrays) for part in tree)
    if isinstance(tree, dict):
        return {key: rebuild(part, arrays) for key, part in tree.items()}
    return tree


def as_arrays(tree):
    """Turn the float numbers of an output into arrays, so that a loss is an output like any other."""
    if isinstance(tree, (float, np.floating)):
        return np.asarray(tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(as_arrays(part) for part in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(as_arrays(part) for part in tree)
    return tree


def differentiable(array):
    """Say whether an array takes part in differentiation: real floating point; integers and booleans do not."""
    return is_array(array) and is_float(array)
