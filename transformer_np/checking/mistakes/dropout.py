"""Dropout, inverted: y = x · keep / (1 - p); backward must use the very same mask."""

from types import SimpleNamespace

import numpy as np

from .museum import Layer


def forward(x, keep, p):
    return x * keep / (1 - p), SimpleNamespace(x=x, keep=keep, p=p)


def backward(dy, c):
    return {"x": dy * c.keep / (1 - c.p)}


def draw(rng):
    return {"x": rng.normal(size=(3, 4, 7)), "keep": rng.random((3, 4, 7)) > 0.3, "p": 0.3}


def infer(values, y):
    """The mask and p, read back from what came out: dropped entries are 0, the others grew by 1/(1 - p)."""
    x = values["x"]
    if y.shape != x.shape or not 0 < (y != 0).sum() < y.size or np.any(x[y != 0] == 0):
        return {}
    p = float(1 - 1 / (y[y != 0] / x[y != 0]).mean())
    if p < 1e-3 or np.array_equal(y != 0, x > 0):
        return {}  # a ReLU drops entries too, but none at random
    return {"keep": y != 0, "p": p}


DROPOUT = Layer(
    "dropout",
    "y = x · keep / (1 - p);  dx = dy · keep / (1 - p)",
    {"x": "...", "keep": "?"},
    ("x", "keep"),
    forward,
    backward,
    draw,
    infer=infer,
    settings={"p": ()},
)


@DROPOUT.mistake(
    "missing factor",
    why="Dropout is thought of as noise on the way forward that backward need not know of.",
    line="dx = dy · keep / (1 - p)",
    fix="keep the mask in forward and multiply by it",
    hidden_when="p = 0",
)
def mask_forgotten(dy, c):
    """The gradient goes straight through, dropped entries included."""
    return {"x": dy.copy()}


@DROPOUT.mistake(
    "missing factor",
    why="The scale was moved into one place, and the mask with it.",
    line="dx = dy · keep / (1 - p)",
    fix="multiply by the mask as well",
    hidden_when="p = 0",
)
def only_the_scale(dy, c):
    """The gradient is scaled by 1/(1 - p), but not masked."""
    return {"x": dy / (1 - c.p)}


@DROPOUT.mistake(
    "constant factor",
    source="BP-40: univieCUBE/deepnog#44, chainer/chainer PR#216",
    why="The mask holds True and False, and forward scales by hand.",
    line="dx = dy · keep / (1 - p)",
    fix="divide by 1 - p, or keep the scaled mask",
    hidden_when="p = 0",
)
def scale_forgotten(dy, c):
    """The gradient is masked, but not divided by 1 - p."""
    return {"x": dy * c.keep}


@DROPOUT.mistake(
    "constant factor",
    why="The kept mask was scaled already, and backward scales again.",
    line="1/(1 - p) occurs once",
    fix="divide once",
    hidden_when="p = 0",
)
def scaled_twice(dy, c):
    """The gradient is divided by 1 - p twice."""
    return {"x": dy * c.keep / (1 - c.p) ** 2}


@DROPOUT.mistake(
    "constant factor",
    why="p is the probability to drop in one text and to keep in another.",
    line="the scale is one over the probability to keep",
    fix="divide by 1 - p",
    hidden_when="p = 1/2",
)
def divided_by_p(dy, c):
    """The gradient is divided by p instead of 1 - p."""
    return {"x": dy * c.keep / c.p}


@DROPOUT.mistake(
    "wrong value",
    source="AkiRusProd/numpy-transformer, one Dropout object reused in a layer",
    why="One dropout object is used in several places and remembers only the last mask.",
    line="keep: the mask of this call",
    fix="one dropout object for each place it is used",
    hidden_when="p = 0",
)
def mask_of_another_call(dy, c):
    """The mask belongs to another call."""
    return {"x": dy * (np.random.default_rng(1).random(dy.shape) >= c.p) / (1 - c.p)}


@DROPOUT.mistake(
    "wrong value",
    source="BP-07's kin: True means keep in one API and drop in another",
    why="The mask says dropped where the other code reads kept.",
    line="keep is 1 where x went through",
    fix="multiply by keep, not by its opposite",
)
def mask_inverted(dy, c):
    """Dropped entries get the gradient, kept ones do not."""
    return {"x": dy * (1 - c.keep) / (1 - c.p)}


@DROPOUT.mistake(
    "wrong value",
    why="The mask is stored without its batch axis to save memory.",
    line="each sequence has a mask of its own",
    fix="store the whole mask",
    hidden_when="the batch is one",
)
def mask_of_the_first_sequence(dy, c):
    """The first sequence's mask is used for the whole batch."""
    return {"x": dy * c.keep[:1] / (1 - c.p)}
