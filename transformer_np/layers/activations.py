"""ReLU, the paper's activation between the two halves of the feed-forward network."""

from ..backend import array_module
from ..checks import check_floats
from ..module import Module


class ReLU(Module):
    """y = max(0, x), entry by entry.

    Shapes: x any, y the same. Backward: dx = dy where x > 0, else 0; at the kink x = 0 the slope is taken as 0.
    Source: equation 2.
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
