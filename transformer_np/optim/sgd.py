"""Stochastic gradient descent, with momentum if wanted."""

from ..checks import check_real
from .optimizer import Optimizer, entrywise


class SGD(Optimizer):
    """u = momentum u + g,  p = p - lr u; without momentum just p = p - lr g.

    Raises ValueError unless 0 <= momentum < 1. Source: Polyak 1964; here lr
    stands outside u, so that it may change from step to step.
    """

    buffers = ("u",)

    def __init__(self, parameters, lr, momentum=0.0):
        super().__init__(parameters, lr)
        check_real(self, momentum=momentum)
        if not 0 <= momentum < 1:
            raise ValueError(f"SGD: momentum must be at least 0 and less than 1, got {momentum!r}")
        self.momentum = momentum

    @entrywise
    def update(self, p, lr, u):
        """Change p.data and u by one step."""
        u *= self.momentum
        u += p.grad
        p.data -= lr * u
