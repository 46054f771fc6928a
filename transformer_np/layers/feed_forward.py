"""The position-wise feed-forward network: two linear maps with an activation between, the same at every position."""

from ..checks import check_choice
from ..module import Module
from .activations import ReLU
from .dropout import Dropout
from .linear import Linear

ACTIVATIONS = {"relu": ReLU}


class FeedForward(Module):
    """y = dropout(act(x W_1 + b_1)) W_2 + b_2.

    Shapes: x (..., D), W_1 (D, F), W_2 (F, D), y (..., D). These are two thirds of a layer's weights: 8 D² with F = 4
    D.
    Backward: the parts' backwards in reverse order.
    Raises ValueError for an unknown activation and for shapes and dtypes that do not fit.
    Source: section 3.3, equation 2. Derivation: docs/derivations/feed-forward.md.
    """

    def __init__(self, d_model, d_ff, activation="relu", *, dropout=0.0, bias=True, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        check_choice(self, "activation", activation, ACTIVATIONS)
        options = {"seed": self.rng, "dtype": dtype}
        self.linear1 = Linear(d_model, d_ff, bias, **options)
        self.activation = ACTIVATIONS[activation](**options)
        self.dropout = Dropout(dropout, **options)
        self.linear2 = Linear(d_ff, d_model, bias, **options)

    def forward(self, x):
        """x (..., D) -> y (..., D)."""
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def backward(self, dy):
        """dy (..., D) -> dx (..., D)."""
        dhidden = self.activation.backward(self.dropout.backward(self.linear2.backward(dy)))  # (..., F)
        return self.linear1.backward(dhidden)
