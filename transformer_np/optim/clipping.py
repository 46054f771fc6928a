"""Gradient clipping: shorten the gradient of the whole model when it is too long, keeping its direction."""

import math
import numbers
from collections.abc import Iterable

import numpy as np


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
    norm = math.hypot(*(_norm(p.grad, i) for i, p in enumerate(parameters) if p.has_grad))
    if norm > max_norm:
        for p in parameters:
            if p.has_grad:
                p.grad *= max_norm / norm
    return norm


def _norm(grad, index):
    flat = grad.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        squared = float(flat @ flat)
    if 0 < squared < math.inf:
        return math.sqrt(squared)
    largest = float(abs(flat).max())
    if not math.isfinite(largest):
        raise FloatingPointError(
            f"clip_grad_norm: the gradient of parameter {index}, shape {grad.shape}, holds infinity or NaN"
        )
    if largest == 0:
        return 0.0
    flat = flat.astype("float64") / largest
    return largest * math.sqrt(float(flat @ flat))
