"""The feed-forward network of the paper: y = max(0, x W1 + b1) W2 + b2."""

from types import SimpleNamespace

import numpy as np

from .linear import rows
from .museum import Layer


def forward(x, w_1, b_1, w_2, b_2):
    z = x @ w_1 + b_1
    h = np.maximum(z, 0)
    return h @ w_2 + b_2, SimpleNamespace(x=x, w_1=w_1, w_2=w_2, z=z, h=h)


def gradients(dy, c, dz):
    return {
        "x": dz @ c.w_1.T,
        "w_1": rows(c.x).T @ rows(dz),
        "b_1": rows(dz).sum(0),
        "w_2": rows(c.h).T @ rows(dy),
        "b_2": rows(dy).sum(0),
    }


def first_layer(dy, c, dz):
    grads = gradients(dy, c, dz)
    return {name: grads[name] for name in ("x", "w_1", "b_1")}


def backward(dy, c):
    return gradients(dy, c, dy @ c.w_2.T * (c.z > 0))


def draw(rng):
    return {
        "x": rng.normal(size=(3, 4, 5)),
        "w_1": rng.normal(size=(5, 7)),
        "b_1": rng.normal(size=7),
        "w_2": rng.normal(size=(7, 5)),
        "b_2": rng.normal(size=5),
    }


FEED_FORWARD = Layer(
    "feed-forward",
    "z = x W1 + b1, h = max(0, z), y = h W2 + b2;  dh = dy W2ᵀ,  dz = dh [z > 0],  dx = dz W1ᵀ",
    {"x": "... D", "w_1": "D F", "b_1": "F", "w_2": "F D", "b_2": "D"},
    ("x",),
    forward,
    backward,
    draw,
    optional={"b_1": 0.0, "b_2": 0.0},
)


@FEED_FORWARD.mistake(
    "missing factor",
    why="ReLU has no parameters, so it is passed by on the way back.",
    line="dz = dh [z > 0]",
    fix="multiply by z > 0",
)
def relu_forgotten(dy, c):
    """ReLU's slope is left out."""
    return first_layer(dy, c, dy @ c.w_2.T)


@FEED_FORWARD.mistake(
    "wrong derivative",
    why="dh < 0 is tested in place of z < 0.",
    line="dz = dh [z > 0]: the condition is on z",
    fix="test the pre-activation",
)
def relu_of_the_gradient(dy, c):
    """Negative entries of the gradient are cut, instead of where z was negative."""
    return first_layer(dy, c, np.maximum(dy @ c.w_2.T, 0))


@FEED_FORWARD.mistake(
    "wrong value",
    why="z and h share a name.",
    line="dW2 = hᵀ dy: h is what met W2",
    fix="use h after the activation",
    hidden_when="every z is positive",
)
def second_weight_reads_z(dy, c):
    """W2's gradient uses z before the activation."""
    return {"w_2": rows(c.z).T @ rows(dy)}


@FEED_FORWARD.mistake("zero", why="backward ends at the first weight.", line="dx = dz W1ᵀ", fix="return dx")
def input_zero(dy, c):
    """The input's gradient is never computed."""
    return {"x": np.zeros(c.x.shape)}


@FEED_FORWARD.mistake(
    "missing factor",
    why="b1's line was written before ReLU's.",
    line="db1 = Σ dz, after ReLU's slope",
    fix="sum dz, not dh",
)
def first_bias_before_the_relu(dy, c):
    """b1's gradient is summed before ReLU's slope is applied."""
    return {"b_1": rows(dy @ c.w_2.T).sum(0)}


@FEED_FORWARD.mistake(
    "missing sum", why="Written for one sequence.", line="db2 sums over every token", fix="sum over batch and time"
)
def second_bias_summed_over_the_batch_only(dy, c):
    """b2's gradient keeps the time axis."""
    return {"b_2": dy.sum(0)}


@FEED_FORWARD.mistake(
    "constant factor",
    why="Divided by the tokens here and in the loss.",
    line="dW1 = xᵀ dz, with nothing divided",
    fix="drop the division",
)
def first_weight_averaged(dy, c):
    """W1's gradient is divided by the number of tokens."""
    w = backward(dy, c)["w_1"]
    return {"w_1": w / len(rows(dy))}
