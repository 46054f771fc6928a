"""Gradient clipping: shorten the gradient of the whole model when it is too long, keeping its direction."""

import math

from ..backend import array_module


def clip_grad_norm(parameters, max_norm):
    """Scale all gradients by max_norm / norm where their common norm is greater than max_norm; return the norm before.

    norm = sqrt(sum over all parameters and entries of grad²). Squares that would overflow float32 are taken in float64.
    Raises FloatingPointError, leaving everything as it was, where a gradient holds infinity or NaN: scaling by
    max_norm / infinity would turn the whole model's gradient to zeros or NaN. Raises ValueError unless max_norm > 0.
    Source: Pascanu et al. 2013, algorithm 1.
    """
    if not max_norm > 0:
        raise ValueError(f"clip_grad_norm: max_norm must be positive, got {max_norm!r}")
    parameters = list(parameters)
    norm = math.sqrt(sum(_squared_norm(p.grad, i) for i, p in enumerate(parameters)))
    if norm > max_norm:
        for p in parameters:
            p.grad *= max_norm / norm
    return norm


def _squared_norm(grad, index):
    flat = grad.reshape(-1)
    squared = float(flat @ flat)
    if math.isfinite(squared):
        return squared
    if not bool(array_module(grad).isfinite(grad).all()):
        raise FloatingPointError(
            f"clip_grad_norm: the gradient of parameter {index}, shape {grad.shape}, holds infinity or NaN"
        )
    flat = flat.astype("float64")
    return float(flat @ flat)
