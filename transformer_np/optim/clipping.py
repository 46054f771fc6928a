"""Gradient clipping: shorten the gradient of the whole model when it is too long, keeping its direction."""

import math
import numbers
from collections.abc import Iterable

import numpy as np

from .. import kernels
from ..backend import array_module
from ..kernels import on_gpu


def clip_grad_norm(parameters, max_norm):
    """Scale all gradients by max_norm / norm where their common norm is greater than max_norm; return the norm before.

    norm = sqrt(sum over all parameters and entries of grad²), also where the squares would overflow or vanish.
    Raises FloatingPointError, leaving everything as it was, where a gradient holds infinity or NaN: scaling by
    max_norm / infinity would turn the whole model's gradient to zeros or NaN. Raises ValueError unless max_norm > 0.
    Source: Pascanu et al. 2013, algorithm 1.
    """
    if not isinstance(max_norm, numbers.Real) or not max_norm > 0:
        raise ValueError(f"clip_grad_norm: max_norm must be a positive number, got {max_norm!r}")
    if not isinstance(parameters, Iterable):
        raise TypeError(f"clip_grad_norm: pass model.parameters(), got a {type(parameters).__name__}")
    parameters = list(parameters)
    norm = grad_norm(parameters)
    shorten(parameters, float(norm), max_norm)
    return float(norm)


def grad_norm(parameters, map=map):
    """Return the common norm of all gradients, not finite where one of them is not.

    On the CPU a float; on a GPU an array without axes, for to read it is to wait for it.
    """
    with_grad = [p for p in parameters if p.has_grad]
    grads = [p.grad for p in with_grad]
    xp = array_module(*grads)
    if xp is np:
        return math.hypot(*map(lambda p: _norm(p.grad), with_grad))
    return xp.sqrt(sums_of_squares(*grads).sum())


@on_gpu(kernels.sums_of_squares)
def sums_of_squares(*grads):
    """Return the sum of squares of each array, (n,) in float64, in which they cannot overflow."""
    xp = array_module(*grads)
    return xp.stack([xp.square(grad.astype(np.float64)).sum() for grad in grads])


def shorten(parameters, norm, max_norm, map=map):
    """Scale the gradients, of the given norm, to max_norm where they are longer.

    Raises FloatingPointError where the norm is not finite.
    """
    with_grad = [(i, p) for i, p in enumerate(parameters) if p.has_grad]
    if not math.isfinite(norm):
        for i, p in with_grad:
            if not bool(array_module(p.grad).isfinite(p.grad).all()):
                raise FloatingPointError(
                    f"clip_grad_norm: the gradient of parameter {i}, shape {p.shape}, holds infinity or NaN"
                )
        raise FloatingPointError(f"clip_grad_norm: the norm of the gradients is {norm}")

    def shorter(p):
        p.grad *= max_norm / norm

    if norm > max_norm:
        list(map(shorter, [p for _, p in with_grad]))


def _norm(grad):
    flat = grad.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        squared = float(flat @ flat)
    if 0 < squared < math.inf:
        return math.sqrt(squared)
    largest = float(abs(flat).max())
    if largest == 0 or not math.isfinite(largest):
        return largest
    flat = flat.astype("float64") / largest
    return largest * math.sqrt(float(flat @ flat))
