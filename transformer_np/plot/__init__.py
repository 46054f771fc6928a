"""Pictures. Each function returns the matplotlib Figure, and draws into `ax` where one is given."""

from .attention import attention, attention_heads
from .by_layer import activations, gradient_norms
from .error_against_h import error_against_h
from .growth import growth
from .jacobian import jacobian
from .losses import learning_rate, losses
from .positions import positions

__all__ = [
    "activations",
    "attention",
    "attention_heads",
    "error_against_h",
    "gradient_norms",
    "growth",
    "jacobian",
    "learning_rate",
    "losses",
    "positions",
]
