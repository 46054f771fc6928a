"""Positions: learned ones, y = x + P[:T], and rotary ones, which turn pairs of features by an angle."""

from types import SimpleNamespace

import numpy as np

from .museum import Layer


def forward(x, table):
    return x + table[: x.shape[-2]], SimpleNamespace(x=x, table=table)


def padded(rows, table):
    """The gradient of the whole table: rows that were not used stay zero."""
    out = np.zeros(table.shape)
    out[: len(rows)] = rows
    return out


def backward(dy, c):
    return {"x": dy.copy(), "table": padded(dy.reshape(-1, *dy.shape[-2:]).sum(0), c.table)}


def draw(rng):
    return {"x": rng.normal(size=(3, 4, 5)), "table": rng.normal(size=(7, 5))}


LEARNED = Layer(
    "learned positions",
    "y = x + P[:T];  dx = dy,  dP[t] = sum of dy[:, t] over the batch, rows from T on zero",
    {"x": "... T D", "table": "M D"},
    ("x",),
    forward,
    backward,
    draw,
)


@LEARNED.mistake(
    "missing sum",
    why="x has a batch axis, P has none; the addition broadcasts without a word.",
    line="dP: each sequence of the batch read the same P",
    fix="dP[:T] = dy.sum(0)",
)
def batch_not_summed(dy, c):
    """The positions' gradient keeps the batch axis."""
    return {"table": dy.copy()}


@LEARNED.mistake(
    "constant factor",
    why="A mean over the batch is taken for a sum.",
    line="dP[t] is the sum over the batch",
    fix="sum, do not average",
    hidden_when="the batch is one",
)
def batch_averaged(dy, c):
    """The positions' gradient is the mean over the batch."""
    return {"table": padded(dy.mean(0), c.table)}


@LEARNED.mistake(
    "missing sum",
    why="dP[:T] = dy[0]: shapes fit, so no error is raised.",
    line="dP: every sequence sends its gradient back",
    fix="dP[:T] = dy.sum(0)",
    hidden_when="the batch is one",
)
def first_sequence_only(dy, c):
    """The positions' gradient comes from the first sequence only."""
    return {"table": padded(dy[0], c.table)}


@LEARNED.mistake(
    "zero",
    why="Positions are thought of as constants, as the sinusoidal ones are.",
    line="learned positions are parameters",
    fix="store dP",
)
def table_never_filled(dy, c):
    """The positions' gradient stays zero."""
    return {"table": np.zeros(c.table.shape)}


@LEARNED.mistake(
    "extra sum",
    why="The sum over the leading axes of a bias is reused, and takes the time axis with it.",
    line="dP[t] belongs to position t alone",
    fix="sum over the batch axis only",
    hidden_when="T = 1",
)
def summed_over_positions(dy, c):
    """Every used position gets the sum over all positions."""
    total = dy.sum((0, 1))
    return {"table": padded(np.broadcast_to(total, dy.shape[1:]), c.table)}


@LEARNED.mistake(
    "positions",
    why="A beginning-of-sequence token shifts the positions in one place only.",
    line="row t was added to token t",
    fix="use the same rows in forward and backward",
    hidden_when="T = 1",
)
def first_position_left_out(dy, c):
    """The first position gets no gradient."""
    rows = dy.sum(0)
    rows[0] = 0
    return {"table": padded(rows, c.table)}


@LEARNED.mistake(
    "reshaped",
    why="The rows are filled from the end, as for left-padded text.",
    line="row t was added to token t",
    fix="dP[:T] = dy.sum(0)",
    hidden_when="T = 1",
)
def rows_in_reverse(dy, c):
    """The positions' gradients are written in reverse order."""
    return {"table": padded(dy.sum(0)[::-1], c.table)}


def turn(x, angles):
    """Turn each pair (x[i], x[i + K/2]) by angles[t, i]."""
    a, b = np.split(x, 2, axis=-1)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def rotary_forward(x, base=10000.0):
    half = x.shape[-1] // 2
    angles = np.arange(x.shape[-2])[:, None] * base ** (-np.arange(half) / half)  # (T, K/2)
    return turn(x, angles), SimpleNamespace(x=x, angles=angles)


def rotary_backward(dy, c):
    return {"x": turn(dy, -c.angles)}


def rotary_draw(rng):
    return {"x": rng.normal(size=(2, 3, 5, 6)), "base": 10000.0}


ROTARY = Layer(
    "rotary positions",
    "y = R(t) x, a rotation;  dx = R(t)ᵀ dy: turn back by the same angle",
    {"x": "... T K"},
    ("x",),
    rotary_forward,
    rotary_backward,
    rotary_draw,
    settings={"base": (10000.0, 500000.0)},
)


@ROTARY.mistake(
    "wrong value",
    why="Backward calls forward's rotation again.",
    line="dx = Rᵀ dy, and the transpose of a rotation turns the other way",
    fix="use the angle -θ: flip the sign of sin",
    hidden_when="T = 1",
)
def turned_the_same_way(dy, c):
    """The gradient is turned by θ instead of -θ."""
    return {"x": turn(dy, c.angles)}


@ROTARY.mistake(
    "missing factor",
    why="Positions have no parameters, so their backward is taken for the identity.",
    line="dx = Rᵀ dy",
    fix="turn dy back",
    hidden_when="T = 1",
)
def not_turned(dy, c):
    """The gradient passes unchanged."""
    return {"x": dy.copy()}


@ROTARY.mistake(
    "positions",
    why="The angle's position counter starts at 1 in backward and at 0 in forward.",
    line="θ = t times the frequency, with the t of forward",
    fix="use the angles kept by forward",
)
def positions_off_by_one(dy, c):
    """Every gradient is turned by the angle of the next position."""
    step = c.angles[1:2] if len(c.angles) > 1 else 0
    return {"x": turn(dy, -(c.angles + step))}


@ROTARY.mistake(
    "reshaped",
    why="There are two layouts, pairs (0, 1), (2, 3) and pairs (i, i + K/2); forward and backward each took one.",
    line="the pair that was turned is the pair to turn back",
    fix="use one layout",
    hidden_when="K = 2",
)
def other_pairing(dy, c):
    """The gradient is turned in pairs of neighbours, while forward turned the halves."""
    order = np.argsort(np.r_[0 : dy.shape[-1] : 2, 1 : dy.shape[-1] : 2])
    return {"x": turn(dy[..., np.argsort(order)], -c.angles)[..., order]}


@ROTARY.mistake(
    "sign",
    why="One of the two sines keeps its sign when the rotation is turned round.",
    line="Rᵀ: both sines change sign",
    fix="da = dya cos + dyb sin, db = -dya sin + dyb cos",
    hidden_when="T = 1",
)
def one_sine_kept(dy, c):
    """The second half of the gradient is computed with the wrong sign of the sine."""
    a, b = np.split(dy, 2, axis=-1)
    cos, sin = np.cos(c.angles), np.sin(c.angles)
    return {"x": np.concatenate([a * cos + b * sin, a * sin + b * cos], axis=-1)}
