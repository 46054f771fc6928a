"""The position-wise feed-forward network: two linear maps with an activation between, the same at every position.

Also its gated form, where a second map decides how much of each hidden number passes.
"""

import functools

from ..checks import check_choice
from ..module import Module
from .activations import ReLU, Sigmoid, SiLU
from .dropout import Dropout
from .gelu import GELU
from .linear import Linear

ACTIVATIONS = {
    "relu": ReLU,
    "gelu": GELU,
    "gelu_tanh": functools.partial(GELU, "tanh"),
    "silu": SiLU,
    "sigmoid": Sigmoid,
}


class FeedForward(Module):
    """y = dropout(act(x W_1 + b_1)) W_2 + b_2.

    Shapes: x (..., D), W_1 (D, F), W_2 (F, D), y (..., D). These are two thirds of a layer's weights: 8 D² with F = 4
    D. Activations: "relu" (the paper), "gelu", "gelu_tanh", "silu", "sigmoid".
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
        hidden = self.linear1(x)  # (..., F)
        return self.linear2(self.dropout(self.activation(hidden)))

    def backward(self, dy):
        """dy (..., D) -> dx (..., D)."""
        dhidden = self.activation.backward(self.dropout.backward(self.linear2.backward(dy)))  # (..., F)
        return self.linear1.backward(dhidden)


class GatedFeedForward(Module):
    """y = dropout(g * u) W_2 + b_2,  g = act(x W_g + b_g),  u = x W_1 + b_1: the gate g lets parts of u through.

    The activation gives the kind its name: "sigmoid" GLU, "relu" ReGLU, "gelu" or "gelu_tanh" GEGLU (T5 v1.1), "silu"
    SwiGLU (Llama). With three matrices in place of two, F is usually two thirds of what it would be.
    Shapes: x (..., D), W_g and W_1 (D, F), W_2 (F, D), y (..., D). No biases by default, as in the models that use it.
    Backward, with dh the gradient that reaches g * u:
        dg = dh * u,  du = dh * g,  dx = (dg through the activation) W_gᵀ + du W_1ᵀ.
    Raises ValueError for an unknown activation and for shapes and dtypes that do not fit.
    Source: Shazeer 2020; the sigmoid gate: Dauphin et al. 2016. Derivation: docs/derivations/feed-forward.md.
    """

    def __init__(self, d_model, d_ff, activation="silu", *, dropout=0.0, bias=False, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        check_choice(self, "activation", activation, ACTIVATIONS)
        options = {"seed": self.rng, "dtype": dtype}
        self.linear_gate = Linear(d_model, d_ff, bias, **options)
        self.linear1 = Linear(d_model, d_ff, bias, **options)
        self.activation = ACTIVATIONS[activation](**options)
        self.dropout = Dropout(dropout, **options)
        self.linear2 = Linear(d_ff, d_model, bias, **options)

    def forward(self, x):
        """x (..., D) -> y (..., D)."""
        gate = self.activation(self.linear_gate(x))  # (..., F)
        up = self.linear1(x)  # (..., F)
        hidden = gate * up
        y = self.linear2(self.dropout(hidden))  # (..., D)
        self.save_for_backward(gate, up, output=y)
        return y

    def backward(self, dy):
        """dy (..., D) -> dx (..., D)."""
        gate, up = self.saved(dy)
        dhidden = self.dropout.backward(self.linear2.backward(dy))  # (..., F)
        dgate, dup = dhidden * up, dhidden * gate
        dx = self.linear_gate.backward(self.activation.backward(dgate))
        dx += self.linear1.backward(dup)
        return dx
