"""Activations: functions of one number, applied entry by entry. GELU has a file of its own."""

import numpy as np

from ..backend import array_module
from ..checks import check_floats
from ..module import Module


def sigmoid(x):
    """Return 1 / (1 + exp(-x))."""
    with np.errstate(over="ignore"):  # far below 0, exp(-x) is infinite and the result 0, as it should be
        y = array_module(x).exp(-x)
    y += 1
    return 1 / y


class ReLU(Module):
    """y = max(0, x), entry by entry.

    Shapes: x any, y the same. Backward: dx = dy where x > 0, else 0; at the kink x = 0 the slope is taken as 0.
    Source: equation 2. Derivation: docs/derivations/feed-forward.md.
    """

    def forward(self, x):
        """x (...) -> y (...)."""
        check_floats(self, "x", x, min_ndim=0)
        y = array_module(x).maximum(x, 0)
        self.save_for_backward(y, output=y)
        return y

    def backward(self, dy):
        """dy (...) -> dx (...)."""
        (y,) = self.saved(dy)
        return dy * (y > 0)  # y > 0 just where x > 0


class Sigmoid(Module):
    """y = 1 / (1 + exp(-x)), entry by entry: a soft switch between 0 and 1.

    Shapes: x any, y the same. Backward: dx = dy * y * (1 - y).
    """

    def forward(self, x):
        """x (...) -> y (...)."""
        check_floats(self, "x", x, min_ndim=0)
        y = sigmoid(x)
        self.save_for_backward(y, output=y)
        return y

    def backward(self, dy):
        """dy (...) -> dx (...)."""
        (y,) = self.saved(dy)
        return dy * y * (1 - y)


class Tanh(Module):
    """y = tanh(x), entry by entry: between -1 and 1.

    Shapes: x any, y the same. Backward: dx = dy * (1 - y²).
    """

    def forward(self, x):
        """x (...) -> y (...)."""
        check_floats(self, "x", x, min_ndim=0)
        y = array_module(x).tanh(x)
        self.save_for_backward(y, output=y)
        return y

    def backward(self, dy):
        """dy (...) -> dx (...)."""
        (y,) = self.saved(dy)
        return dy * (1 - y * y)


class SiLU(Module):
    """y = x s,  s = 1 / (1 + exp(-x)), entry by entry: a ReLU with a soft corner, also called swish.

    Shapes: x any, y the same. Backward, by the product rule: dx = dy * s * (1 + x (1 - s)).
    Source: Elfwing et al. 2017; Ramachandran et al. 2017. Derivation: docs/derivations/gelu.md.
    """

    def forward(self, x):
        """x (...) -> y (...)."""
        check_floats(self, "x", x, min_ndim=0)
        s = sigmoid(x)
        y = x * s
        self.save_for_backward(x, s, output=y)
        return y

    def backward(self, dy):
        """dy (...) -> dx (...)."""
        x, s = self.saved(dy)
        slope = 1 - s
        slope *= x
        slope += 1
        slope *= s
        slope *= dy
        return slope
