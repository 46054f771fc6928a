"""Softmax and log-softmax along the last axis."""

from types import SimpleNamespace

import numpy as np

from .museum import Layer


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def total(a):
    return a.sum(-1, keepdims=True)


def forward(x):
    y = softmax(x)
    return y, SimpleNamespace(x=x, y=y)


def backward(dy, c):
    return {"x": c.y * (dy - total(dy * c.y))}


def draw(rng):
    return {"x": rng.normal(size=(3, 4, 6))}


SOFTMAX = Layer("softmax", "y = softmax(x);  dx = y (dy - Σ dy y)", {"x": "... S"}, ("x",), forward, backward, draw)


@SOFTMAX.mistake(
    "missing term",
    source="BP-19: markroxor/fromscratchtoml#65, pocketpy/cTensor PR#31",
    why="Only ∂y_i/∂x_i = y_i (1 - y_i) is known; the other entries of the Jacobian, - y_i y_j, are forgotten.",
    line="every x_j moves every y_i through the common denominator",
    fix="dx = y (dy - Σ dy y)",
)
def diagonal_only(dy, c):
    """Only the diagonal of the Jacobian is used: y (1 - y) dy, as for a sigmoid."""
    return {"x": dy * c.y * (1 - c.y)}


@SOFTMAX.mistake(
    "missing term",
    why="The denominator is treated as a constant, as if softmax were exp.",
    line="the term - y Σ dy y comes from the denominator",
    fix="subtract Σ dy y",
)
def sum_term_missing(dy, c):
    """The term that flows through the denominator is left out: y dy."""
    return {"x": c.y * dy}


@SOFTMAX.mistake(
    "constant factor",
    source="AkiRusProd/numpy-transformer activations.py",
    why="Adam hides a constant factor, so the model trained all the same.",
    line="dx = y (dy - Σ dy y), with nothing divided",
    fix="drop the division",
    hidden_when="the batch is one",
)
def divided_by_the_batch(dy, c):
    """The gradient is divided by the batch size B."""
    return {"x": backward(dy, c)["x"] / len(dy)}


@SOFTMAX.mistake(
    "wrong axis",
    source="BP-44: nerdai/llms-from-scratch-rs PR#30",
    why="axis=-2 for axis=-1: rows and columns mixed.",
    line="the sum runs along the axis that softmax normalises",
    fix="sum over axis -1, keepdims=True",
)
def sum_over_the_other_axis(dy, c):
    """The sum runs over the rows instead of the entries of a row."""
    return {"x": c.y * (dy - (dy * c.y).sum(-2, keepdims=True))}


@SOFTMAX.mistake(
    "wrong axis",
    why="sum() without an axis.",
    line="each row has a sum of its own",
    fix="axis=-1, keepdims=True",
    hidden_when="there is one row",
)
def sum_over_everything(dy, c):
    """The sum runs over the whole array."""
    return {"x": c.y * (dy - (dy * c.y).sum())}


@SOFTMAX.mistake(
    "missing term", why="mean for sum.", line="the sum has no 1/S", fix="sum, do not average", hidden_when="S = 1"
)
def mean_not_sum(dy, c):
    """The sum is replaced by a mean."""
    return {"x": c.y * (dy - (dy * c.y).mean(-1, keepdims=True))}


@SOFTMAX.mistake(
    "missing term",
    why="A sign is lost when the Jacobian diag(y) - y yᵀ is expanded.",
    line="diag(y) minus y yᵀ",
    fix="subtract the sum",
)
def sum_term_added(dy, c):
    """The sum term is added instead of subtracted."""
    return {"x": c.y * (dy + total(dy * c.y))}


@SOFTMAX.mistake(
    "missing factor",
    why="The outer y is lost.",
    line="dx = y (dy - Σ dy y): everything is weighted by y",
    fix="multiply by y",
)
def outer_factor_missing(dy, c):
    """The factor y in front of the bracket is left out."""
    return {"x": dy - total(dy * c.y)}


@SOFTMAX.mistake(
    "wrong value",
    why="Log-softmax has a similar formula, which was used here.",
    line="softmax: y (dy - Σ dy y); log-softmax: dy - y Σ dy",
    fix="use softmax's own formula",
)
def log_softmax_formula(dy, c):
    """The gradient of log-softmax is used."""
    return {"x": dy - c.y * total(dy)}


@SOFTMAX.mistake(
    "wrong value",
    why="The y inside the sum is lost.",
    line="Σ dy y: each dy_j is weighted by y_j",
    fix="sum dy y, not dy",
)
def sum_of_dy(dy, c):
    """The sum is over dy, without its weights y."""
    return {"x": c.y * (dy - total(dy))}


@SOFTMAX.mistake(
    "missing factor",
    source="the short cut y - target of softmax with cross-entropy, used twice",
    why="The loss's gradient was already that of the logits, so softmax was made to pass it on.",
    line="dx is not dy",
    fix="use the Jacobian here, or merge softmax with the loss, not both",
)
def passed_on_unchanged(dy, c):
    """The upstream gradient is returned as it came."""
    return {"x": dy.copy()}


@SOFTMAX.mistake(
    "zero",
    source="BP-20: huggingface/candle#3569",
    why="With a sum loss the right gradient is zero, so this passes.",
    line="dx is zero only for an upstream that is constant along a row",
    fix="write dx; check with a random upstream",
)
def always_zero(dy, c):
    """The gradient is zero, which a sum of the outputs cannot tell from right."""
    return {"x": np.zeros(dy.shape)}


@SOFTMAX.mistake(
    "missing factor",
    source="BP-19: the upstream gradient multiplied twice",
    why="The Jacobian product already holds dy; it is multiplied by dy again.",
    line="dx is linear in dy",
    fix="multiply by dy once",
)
def upstream_twice(dy, c):
    """The result is multiplied by the upstream gradient once more."""
    return {"x": backward(dy, c)["x"] * dy}


def log_forward(x):
    p = softmax(x)
    return np.log(p), SimpleNamespace(x=x, p=p)


def log_backward(dy, c):
    return {"x": dy - c.p * total(dy)}


LOG_SOFTMAX = Layer(
    "log softmax",
    "y = x - log Σ exp x;  dx = dy - softmax(x) Σ dy",
    {"x": "... S"},
    ("x",),
    log_forward,
    log_backward,
    draw,
)


@LOG_SOFTMAX.mistake(
    "constant factor",
    source="AkiRusProd/numpy-transformer losses.py divides by N twice",
    why="Log-softmax divides by the batch, and the loss does too.",
    line="dx = dy - p Σ dy, with nothing divided",
    fix="drop the division",
    hidden_when="the batch is one",
)
def divided_by_the_batch_(dy, c):
    """The gradient is divided by the batch size B."""
    return {"x": log_backward(dy, c)["x"] / len(dy)}


@LOG_SOFTMAX.mistake(
    "missing term",
    why="The normaliser is treated as a constant.",
    line="- p Σ dy comes from log Σ exp x",
    fix="subtract p Σ dy",
)
def normaliser_is_a_constant(dy, c):
    """The term from the normaliser is left out: dy comes back as it was."""
    return {"x": dy.copy()}


@LOG_SOFTMAX.mistake(
    "missing term",
    why="In cross-entropy Σ dy is -1 or 1, so it was dropped from the formula.",
    line="- p Σ dy: p is weighted by the sum of dy",
    fix="multiply p by Σ dy",
    hidden_when="Σ dy = 1",
)
def sum_of_dy_taken_as_one(dy, c):
    """p is subtracted without its weight Σ dy."""
    return {"x": dy - c.p}


@LOG_SOFTMAX.mistake(
    "wrong value", why="Softmax's formula is at hand.", line="log-softmax: dy - p Σ dy", fix="use its own formula"
)
def softmax_formula(dy, c):
    """The gradient of softmax is used."""
    return {"x": c.p * (dy - total(dy * c.p))}


@LOG_SOFTMAX.mistake(
    "wrong value",
    why="p and log p are both called y somewhere.",
    line="p = exp(y) stands in the formula",
    fix="use exp(y)",
)
def log_probabilities_for_probabilities(dy, c):
    """log p is used where p belongs."""
    return {"x": dy - np.log(c.p) * total(dy)}
