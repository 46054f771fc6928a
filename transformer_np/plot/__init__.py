"""Pictures. Each function returns the matplotlib Figure, and draws into `ax` where one is given."""

from .attention import attention
from .losses import losses

__all__ = ["attention", "losses"]
