"""Linear: y = x W + b, over any number of leading axes."""

from types import SimpleNamespace

import numpy as np

from .museum import Layer


def forward(x, W, b):
    return x @ W + b, SimpleNamespace(x=x, W=W)


def rows(a):
    """All leading axes as one: (..., D) -> (N, D)."""
    return a.reshape(-1, a.shape[-1])


def backward(dy, c):
    return {"x": dy @ c.W.T, "W": rows(c.x).T @ rows(dy), "b": rows(dy).sum(0)}


def draw(rng):
    return {"x": rng.normal(size=(3, 4, 5)), "W": rng.normal(size=(5, 6)), "b": rng.normal(size=6)}


LINEAR = Layer(
    "linear",
    "y = x W + b;  dx = dy Wᵀ,  dW = xᵀ dy,  db = sum of dy over the tokens",
    {"x": "... I", "W": "I O", "b": "O"},
    ("x",),
    forward,
    backward,
    draw,
    optional={"b": 0.0},
)


@LINEAR.mistake(
    "missing sum",
    source="BP-25: jimfleming/differentiation#1",
    why="y = x W + b adds the same b to every token; broadcasting hides that b was used many times.",
    line="db: every token that read b sends its gradient back",
    fix="db = dy.sum over every axis but the last",
)
def bias_not_summed(dy, c):
    """The bias gradient keeps the batch axes, and the first update turns the bias into a matrix."""
    return {"b": dy.copy()}


@LINEAR.mistake(
    "missing sum",
    why="The code was written for (N, D) and later fed (B, T, D): axis 0 is no longer every token.",
    line="db: the sum runs over every leading axis, not over axis 0",
    fix="db = dy.reshape(-1, O).sum(0)",
)
def bias_summed_over_the_batch_only(dy, c):
    """The bias gradient is summed over axis 0 and keeps the time axis."""
    return {"b": dy.sum(0)}


@LINEAR.mistake(
    "constant factor",
    why="A mean feels safer than a sum, and the loss is often a mean.",
    line="db = sum of dy; a mean belongs to the loss, which has divided already",
    fix="sum, do not average",
)
def bias_averaged_over_tokens(dy, c):
    """The bias gradient is the mean over the tokens, not the sum."""
    return {"b": rows(dy).mean(0)}


@LINEAR.mistake(
    "constant factor",
    source="course code dividing by m in every layer (CS231n-style notes)",
    why="Formulas with 1/m come from a derivation in which the loss had not been averaged yet.",
    line="dW = xᵀ dy; the 1/N is inside dy already",
    fix="drop the division",
)
def weight_averaged_over_tokens(dy, c):
    """The weight gradient is divided by the number of tokens."""
    return {"W": rows(c.x).T @ rows(dy) / len(rows(dy))}


@LINEAR.mistake(
    "constant factor",
    why="Each layer divides by the batch size, and the loss did too.",
    line="dW = xᵀ dy; the batch size occurs in the loss only",
    fix="drop the division",
)
def weight_divided_by_the_batch(dy, c):
    """The weight gradient is divided by the batch size B."""
    return {"W": rows(c.x).T @ rows(dy) / len(dy)}


@LINEAR.mistake(
    "constant factor",
    why="The division by the batch size is done in every layer on the way down.",
    line="dx = dy Wᵀ, with nothing divided",
    fix="drop the division",
)
def input_divided_by_the_batch(dy, c):
    """The input gradient is divided by the batch size B."""
    return {"x": dy @ c.W.T / len(dy)}


@LINEAR.mistake(
    "transposed",
    source="BP-71: huggingface/transformers#311, two layouts of the same weight",
    why="dW was derived for y = W x with columns, the code computes y = x W with rows.",
    line="dW has the shape of W: (inputs, outputs), so x comes first: xᵀ dy",
    fix="dW = x.T @ dy",
    hidden_when="W has one row or one column",
)
def weight_transposed(dy, c):
    """The weight gradient is dyᵀ x, the transpose of the right one."""
    return {"W": rows(dy).T @ rows(c.x)}


@LINEAR.mistake(
    "reshaped",
    why="A (B, T, D) array is brought to (D, N) by one reshape, which keeps the memory order.",
    line="xᵀ: rows must become columns; reshape only re-cuts the same sequence of numbers",
    fix="x.reshape(-1, I).T, not x.reshape(I, -1)",
)
def input_reshaped_for_the_weight(dy, c):
    """The weight gradient reads x reshaped to (I, N) instead of transposed."""
    return {"W": c.x.reshape(c.W.shape[0], -1) @ rows(dy)}


@LINEAR.mistake(
    "missing sum",
    why="A loop over the batch assigns to dW where it should add.",
    line="dW: every token adds its outer product",
    fix="dW += inside the loop",
    hidden_when="the batch is one",
)
def weight_of_the_last_sequence(dy, c):
    """The weight gradient comes from the last sequence of the batch only."""
    return {"W": c.x[-1].T @ dy[-1]}


@LINEAR.mistake(
    "sign",
    why="The update rule's minus was written into the gradient.",
    line="dW = + xᵀ dy; the minus belongs to the optimiser",
    fix="remove the minus",
)
def weight_negated(dy, c):
    """The weight gradient has the opposite sign."""
    return {"W": -(rows(c.x).T @ rows(dy))}


@LINEAR.mistake(
    "constant factor",
    source="BP-49: karpathy/micrograd#53",
    why="Both the layer and its owner add the gradient to .grad.",
    line="dW is added once for each use of W",
    fix="let one place alone accumulate",
)
def weight_added_twice(dy, c):
    """The weight gradient is accumulated twice."""
    return {"W": 2 * rows(c.x).T @ rows(dy)}


@LINEAR.mistake(
    "zero",
    why="db was computed and never stored, or the optimiser's list lacked it.",
    line="db: b is a parameter and has a gradient",
    fix="store db",
)
def bias_never_filled(dy, c):
    """The bias gradient stays zero."""
    return {"b": np.zeros(dy.shape[-1])}


@LINEAR.mistake(
    "extra sum",
    why="sum() without an axis adds everything, and broadcasting then hides it in the update.",
    line="db has one entry for each output",
    fix="sum over the leading axes only",
)
def bias_summed_over_everything(dy, c):
    """The bias gradient is the sum of all of dy, the same number for each output."""
    return {"b": np.full(dy.shape[-1], dy.sum())}
