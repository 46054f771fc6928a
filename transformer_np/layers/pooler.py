"""BERT's pooler: one vector for the whole sentence, made from its first position."""

from ..backend import array_module
from ..checks import check_floats
from ..module import Module
from .activations import Tanh
from .linear import Linear


class Pooler(Module):
    """y = tanh(x_0 W + b), x_0 the vector at the first position ([CLS]).

    Shapes: x (B, T, D), W (D, D), b (D,), y (B, D).
    Backward: tanh's and the linear map's at position 0; every other position has gradient 0.
    Raises ValueError for shapes and dtypes that do not fit.
    Source: Devlin et al. 2018; the dense layer with tanh is that of their code (modeling.py).
    """

    def __init__(self, d_model, *, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        self.linear = Linear(d_model, d_model, seed=self.rng, dtype=dtype)
        self.tanh = Tanh(dtype=dtype)
        self.d_model = d_model

    def forward(self, x):
        """x (B, T, D) -> y (B, D)."""
        check_floats(self, "x", x, shape=(None, None, self.d_model), dtype=self.dtype)
        y = self.tanh(self.linear(x[:, 0]))
        self.save_for_backward(x.shape, output=y)
        return y

    def backward(self, dy):
        """dy (B, D) -> dx (B, T, D)."""
        (shape,) = self.saved(dy)
        dx = array_module(dy).zeros(shape, dy.dtype)
        dx[:, 0] = self.linear.backward(self.tanh.backward(dy))
        return dx
