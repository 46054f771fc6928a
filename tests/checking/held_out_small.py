"""Held-out layers that work entry by entry, that average, and losses: the second half of the list."""

import numpy as np
from held_out_form import HeldOut, sigmoid

# ---- activations outside the catalogue -----------------------------------------------------------------------------


def draw_x(rng):
    return {"x": rng.normal(size=(3, 4, 5))}, {}, {}


SOFTPLUS = HeldOut(
    "softplus",
    draw_x,
    lambda v: np.log1p(np.exp(v["x"])),
    lambda dy, v: {"x": dy * sigmoid(v["x"])},
    [
        (
            "the slope of the sigmoid",
            "wrong derivative",
            "x",
            lambda dy, v, g: dy * sigmoid(v["x"]) * (1 - sigmoid(v["x"])),
        ),
        ("no slope at all", "missing factor", "x", lambda dy, v, g: dy.copy()),
    ],
)

TANH = HeldOut(
    "tanh",
    draw_x,
    lambda v: np.tanh(v["x"]),
    lambda dy, v: {"x": dy * (1 - np.tanh(v["x"]) ** 2)},
    [
        ("no slope at all", "missing factor", "x", lambda dy, v, g: dy.copy()),
        ("1 - x squared, not 1 - y squared", "wrong derivative", "x", lambda dy, v, g: dy * (1 - v["x"] ** 2)),
    ],
)


def draw_prelu(rng):
    return {"x": rng.normal(size=(3, 4, 5))}, {"slope": rng.normal(size=5)}, {}


def prelu(v):
    return np.where(v["x"] > 0, v["x"], v["slope"] * v["x"])


def prelu_backward(dy, v):
    negative = v["x"] <= 0
    return {"x": dy * np.where(negative, v["slope"], 1), "slope": (dy * v["x"] * negative).sum((0, 1))}


PRELU = HeldOut(
    "PReLU",
    draw_prelu,
    prelu,
    prelu_backward,
    [
        ("the slope reads positive entries too", "missing factor", "slope", lambda dy, v, g: (dy * v["x"]).sum((0, 1))),
        (
            "the slope of every token, never summed",
            "missing sum",
            "slope",
            lambda dy, v, g: dy * v["x"] * (v["x"] <= 0),
        ),
        ("ReLU's gradient", "wrong derivative", "x", lambda dy, v, g: dy * (v["x"] > 0)),
    ],
)


# ---- highway: y = t * h + (1 - t) * x ------------------------------------------------------------------------------


def draw_highway(rng):
    inputs = {name: rng.normal(size=(3, 4, 5)) for name in ("x", "h")}
    return inputs | {"t": rng.uniform(0.1, 0.9, size=(3, 4, 5))}, {}, {}


HIGHWAY = HeldOut(
    "highway gate",
    draw_highway,
    lambda v: v["t"] * v["h"] + (1 - v["t"]) * v["x"],
    lambda dy, v: {"x": dy * (1 - v["t"]), "h": dy * v["t"], "t": dy * (v["h"] - v["x"])},
    [
        ("the gate pulls the wrong way", "sign", "t", lambda dy, v, g: dy * (v["x"] - v["h"])),
        ("the gate's second path left out", "missing path", "t", lambda dy, v, g: dy * v["h"]),
        ("x given t, not 1 - t", "other array", "x", lambda dy, v, g: dy * v["t"]),
    ],
)


# ---- mean of the real tokens: x (B, T, D), keep (B, T) -------------------------------------------------------------


def draw_mean(rng):
    keep = np.arange(6) < np.array([6, 3, 4])[:, None]
    return {"x": rng.normal(size=(3, 6, 5)), "keep": keep}, {}, {}


def masked_mean(v):
    keep = v["keep"][..., None]
    return (v["x"] * keep).sum(1) / keep.sum(1)


def masked_mean_backward(dy, v):
    keep = v["keep"][..., None]
    return {"x": keep * (dy / keep.sum(1))[:, None]}


MEAN = HeldOut(
    "masked mean",
    draw_mean,
    masked_mean,
    masked_mean_backward,
    [
        (
            "the padding gets a gradient",
            "positions",
            "x",
            lambda dy, v, g: np.repeat((dy / v["keep"].sum(1, keepdims=True))[:, None], 6, axis=1),
        ),
        ("not divided by the length", "missing factor", "x", lambda dy, v, g: v["keep"][..., None] * dy[:, None]),
        (
            "divided by the padded length",
            "missing factor",
            "x",
            lambda dy, v, g: v["keep"][..., None] * dy[:, None] / 6,
        ),
    ],
)


# ---- bag of embeddings: ids (B, T), table (V, D) -> mean (B, D) ----------------------------------------------------


def draw_bag(rng):
    ids = np.array([[1, 2, 1, 5], [3, 2, 2, 6], [0, 4, 6, 1]])
    return {"ids": ids}, {"table": rng.normal(size=(8, 5))}, {}


def bag(v):
    return v["table"][v["ids"]].mean(1)


def bag_dtable(dy, v):
    out, rows = np.zeros_like(v["table"]), np.repeat(dy[:, None] / 4, 4, axis=1)
    np.add.at(out, v["ids"], rows)
    return out


def bag_last_write(dy, v):
    out = np.zeros_like(v["table"])
    out[v["ids"]] += np.repeat(dy[:, None] / 4, 4, axis=1)
    return out


BAG = HeldOut(
    "bag of embeddings",
    draw_bag,
    bag,
    lambda dy, v: {"table": bag_dtable(dy, v)},
    [
        ("repeated ids overwrite each other", "repeated ids", "table", lambda dy, v, g: bag_last_write(dy, v)),
        ("not divided by the length of the bag", "constant factor", "table", lambda dy, v, g: 4 * g["table"]),
    ],
)


# ---- unit length, squared error, patches, a shared offset ----------------------------------------------------------


def unit(v):
    return v["x"] / np.sqrt((v["x"] ** 2).sum(-1, keepdims=True))


def unit_dx(dy, v, project=1):
    length, y = np.sqrt((v["x"] ** 2).sum(-1, keepdims=True)), unit(v)
    return (dy - project * y * (y * dy).sum(-1, keepdims=True)) / length


UNIT = HeldOut(
    "unit length",
    draw_x,
    unit,
    lambda dy, v: {"x": unit_dx(dy, v)},
    [
        ("the length is a constant", "missing term", "x", lambda dy, v, g: unit_dx(dy, v, project=0)),
        (
            "not divided by the length",
            "missing factor",
            "x",
            lambda dy, v, g: g["x"] * np.sqrt((v["x"] ** 2).sum(-1, keepdims=True)),
        ),
    ],
)


def draw_squares(rng):
    return {"prediction": rng.normal(size=(4, 5)), "target": rng.normal(size=(4, 5))}, {}, {}


def squares_backward(dy, v):
    d = 2 * dy * (v["prediction"] - v["target"]) / 20
    return {"prediction": d, "target": -d}


SQUARES = HeldOut(
    "mean squared error",
    draw_squares,
    lambda v: ((v["prediction"] - v["target"]) ** 2).mean(),
    squares_backward,
    [
        ("without the 2", "constant factor", "prediction", lambda dy, v, g: g["prediction"] / 2),
        (
            "divided by the batch, not by all entries",
            "constant factor",
            "prediction",
            lambda dy, v, g: g["prediction"] * 5,
        ),
        ("target minus prediction", "sign", "prediction", lambda dy, v, g: -g["prediction"]),
    ],
)


def draw_image(rng):
    return {"image": rng.normal(size=(2, 4, 6))}, {}, {}


def patches(v):
    image = v["image"].reshape(2, 2, 2, 3, 2)  # (B, rows, 2, columns, 2)
    return image.transpose(0, 1, 3, 2, 4).reshape(2, 6, 4)


def patches_backward(dy, v):
    return {"image": dy.reshape(2, 2, 3, 2, 2).transpose(0, 1, 3, 2, 4).reshape(2, 4, 6)}


PATCHES = HeldOut(
    "patches",
    draw_image,
    patches,
    patches_backward,
    [
        ("reshaped, not moved back", "reshaped", "image", lambda dy, v, g: dy.reshape(2, 4, 6)),
    ],
)


def draw_offset(rng):
    return {"x": rng.normal(size=(3, 4, 5))}, {"offset": rng.normal(size=(4, 1))}, {}


OFFSET = HeldOut(
    "offset of each position",
    draw_offset,
    lambda v: v["x"] + v["offset"],
    lambda dy, v: {"x": dy.copy(), "offset": dy.sum((0, 2))[:, None]},
    [
        ("summed over the batch only", "missing sum", "offset", lambda dy, v, g: dy.sum(0)),
        ("x got the mean over the positions", "extra sum", "x", lambda dy, v, g: dy.mean(1, keepdims=True) + 0 * dy),
        ("summed over the positions too", "extra sum", "offset", lambda dy, v, g: dy.sum() + np.zeros((4, 1))),
    ],
)
