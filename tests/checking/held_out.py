"""Wrong gradients in layers that the catalogue of known mistakes does not hold: written before the diagnosis was.

Each layer is a forward, a right backward, and wrong gradients of one array each, with the kind that a careful teacher
would name. The diagnosis sees these layers for the first time here; it may not be tuned to them.
"""

import math

import numpy as np
from held_out_form import HeldOut, sigmoid
from held_out_small import (
    BAG,
    HIGHWAY,
    MEAN,
    OFFSET,
    PATCHES,
    PRELU,
    SOFTPLUS,
    SQUARES,
    TANH,
    UNIT,
)

# ---- group norm: x (B, C, L), G groups -----------------------------------------------------------------------------


def draw_group_norm(rng):
    return (
        {"x": rng.normal(size=(3, 6, 5))},
        {"gamma": rng.normal(size=6), "beta": rng.normal(size=6)},
        {"n_groups": 2, "eps": 1e-5},
    )


def grouped(v, array):
    B, C, L = array.shape
    return array.reshape(B, v["n_groups"], C // v["n_groups"], L)  # (B, G, C/G, L)


def group_parts(v):
    x = grouped(v, v["x"])
    mean = x.mean((2, 3), keepdims=True)
    std = np.sqrt(((x - mean) ** 2).mean((2, 3), keepdims=True) + v["eps"])
    return (x - mean) / std, std


def group_norm(v):
    n, _ = group_parts(v)
    return n.reshape(v["x"].shape) * v["gamma"][:, None] + v["beta"][:, None]


def group_norm_dx(dy, v, mean_term=1.0, var_term=1.0, axes=(2, 3), gamma_inside=True):
    n, std = group_parts(v)
    dn = grouped(v, dy * v["gamma"][:, None] if gamma_inside else dy)
    dx = dn - mean_term * dn.mean(axes, keepdims=True) - var_term * n * (dn * n).mean(axes, keepdims=True)
    dx = (dx / std).reshape(v["x"].shape)
    return dx if gamma_inside else dx * v["gamma"][:, None]


def group_norm_backward(dy, v):
    n = group_parts(v)[0].reshape(v["x"].shape)
    return {"x": group_norm_dx(dy, v), "gamma": (dy * n).sum((0, 2)), "beta": dy.sum((0, 2))}


GROUP_NORM = HeldOut(
    "group norm",
    draw_group_norm,
    group_norm,
    group_norm_backward,
    [
        ("the mean is a constant", "missing term", "x", lambda dy, v, g: group_norm_dx(dy, v, mean_term=0)),
        ("the variance is a constant", "missing term", "x", lambda dy, v, g: group_norm_dx(dy, v, var_term=0)),
        (
            "the variance term of all groups at once",
            "missing term",
            "x",
            lambda dy, v, g: group_norm_dx(dy, v, var_term=0.5),
        ),
        ("means over the length only", "wrong axis", "x", lambda dy, v, g: group_norm_dx(dy, v, axes=(3,))),
        ("gamma outside the means", "wrong value", "x", lambda dy, v, g: group_norm_dx(dy, v, gamma_inside=False)),
        ("gamma reads x, not the normalised x", "wrong value", "gamma", lambda dy, v, g: (dy * v["x"]).sum((0, 2))),
        ("beta not summed over the batch", "missing sum", "beta", lambda dy, v, g: dy.sum(2)),
        ("beta averaged over the batch", "constant factor", "beta", lambda dy, v, g: dy.sum(2).mean(0)),
    ],
)


# ---- bilinear: a (B, I), b (B, J), W (O, I, J), bias (O,) ----------------------------------------------------------


def draw_bilinear(rng):
    return (
        {"a": rng.normal(size=(4, 5)), "b": rng.normal(size=(4, 5))},
        {"W": rng.normal(size=(3, 5, 5)), "bias": rng.normal(size=3)},
        {},
    )


def bilinear(v):
    return np.einsum("bi,oij,bj->bo", v["a"], v["W"], v["b"]) + v["bias"]


def bilinear_backward(dy, v):
    return {
        "a": np.einsum("bo,oij,bj->bi", dy, v["W"], v["b"]),
        "b": np.einsum("bo,oij,bi->bj", dy, v["W"], v["a"]),
        "W": np.einsum("bo,bi,bj->oij", dy, v["a"], v["b"]),
        "bias": dy.sum(0),
    }


def one_percent_off(gradient):
    out = gradient.copy()
    out[-1] *= 1.01
    return out


BILINEAR = HeldOut(
    "bilinear",
    draw_bilinear,
    bilinear,
    bilinear_backward,
    [
        ("W with its last axes swapped", "transposed", "W", lambda dy, v, g: g["W"].transpose(0, 2, 1)),
        ("b never filled in", "zero", "b", lambda dy, v, g: np.zeros_like(v["b"])),
        ("a given the gradient of b", "other array", "a", lambda dy, v, g: g["b"]),
        ("bias divided by the batch", "constant factor", "bias", lambda dy, v, g: dy.mean(0)),
        ("W divided by the batch", "constant factor", "W", lambda dy, v, g: g["W"] / len(dy)),
        ("the last bias one percent off", "some entries", "bias", lambda dy, v, g: one_percent_off(g["bias"])),
    ],
)


# ---- gated linear unit: x (B, T, 2F) = values and gates ------------------------------------------------------------


def draw_glu(rng):
    return {"x": rng.normal(size=(3, 4, 10))}, {}, {}


def glu(v):
    a, g = np.split(v["x"], 2, axis=-1)
    return a * sigmoid(g)


def glu_backward(dy, v):
    a, g = np.split(v["x"], 2, axis=-1)
    s = sigmoid(g)
    return {"x": np.concatenate([dy * s, dy * a * s * (1 - s)], axis=-1)}


def glu_wrong(dy, v, halves):
    a, g = np.split(v["x"], 2, axis=-1)
    return np.concatenate(halves(dy, a, sigmoid(g)), axis=-1)


GLU = HeldOut(
    "gated linear unit",
    draw_glu,
    glu,
    glu_backward,
    [
        (
            "halves in the wrong order",
            "reshaped",
            "x",
            lambda dy, v, g: glu_wrong(dy, v, lambda d, a, s: [d * a * s * (1 - s), d * s]),
        ),
        (
            "the values are not gated",
            "missing factor",
            "x",
            lambda dy, v, g: glu_wrong(dy, v, lambda d, a, s: [d, d * a * s * (1 - s)]),
        ),
        (
            "the gate derivative without 1 - s",
            "missing factor",
            "x",
            lambda dy, v, g: glu_wrong(dy, v, lambda d, a, s: [d * s, d * a * s]),
        ),
        (
            "the gate derivative without the value",
            "missing factor",
            "x",
            lambda dy, v, g: glu_wrong(dy, v, lambda d, a, s: [d * s, d * s * (1 - s)]),
        ),
    ],
)


# ---- 1-D convolution: x (B, T, C), W (K, C, O), bias (O,) ----------------------------------------------------------


def draw_conv(rng):
    return {"x": rng.normal(size=(3, 7, 4))}, {"W": rng.normal(size=(3, 4, 5)), "bias": rng.normal(size=5)}, {}


def conv(v):
    K, T = len(v["W"]), v["x"].shape[1]
    return sum(v["x"][:, k : T - K + 1 + k] @ v["W"][k] for k in range(K)) + v["bias"]


def conv_dx(dy, v, taps=None):
    dx, K = np.zeros_like(v["x"]), len(v["W"])
    for k in range(K) if taps is None else taps:
        dx[:, k : k + dy.shape[1]] += dy @ v["W"][k].T
    return dx


def conv_dw(dy, v):
    return np.stack([np.einsum("btc,bto->co", v["x"][:, k : k + dy.shape[1]], dy) for k in range(len(v["W"]))])


def conv_backward(dy, v):
    return {"x": conv_dx(dy, v), "W": conv_dw(dy, v), "bias": dy.sum((0, 1))}


def last_position_zero(gradient):
    out = gradient.copy()
    out[:, -1] = 0
    return out


CONV = HeldOut(
    "1-D convolution",
    draw_conv,
    conv,
    conv_backward,
    [
        ("the kernel gradient runs backwards", "reshaped", "W", lambda dy, v, g: g["W"][::-1]),
        ("the last tap left out of dx", "missing path", "x", lambda dy, v, g: conv_dx(dy, v, taps=(0, 1))),
        ("the last position left out of dx", "positions", "x", lambda dy, v, g: last_position_zero(g["x"])),
        ("bias summed over the time only", "missing sum", "bias", lambda dy, v, g: dy.sum(1)),
        ("bias averaged over batch and time", "constant factor", "bias", lambda dy, v, g: dy.mean((0, 1))),
        ("W of the first sequence only", "missing sum", "W", lambda dy, v, g: conv_dw(dy[:1], {**v, "x": v["x"][:1]})),
        (
            "W of each sequence, never summed",
            "missing sum",
            "W",
            lambda dy, v, g: np.stack([conv_dw(dy[b : b + 1], {**v, "x": v["x"][b : b + 1]}) for b in range(len(dy))]),
        ),
    ],
)


# ---- GRU cell: x (B, I), h (B, H) ----------------------------------------------------------------------------------


def draw_gru(rng):
    inputs = {"x": rng.normal(size=(4, 3)), "h": rng.normal(size=(4, 5))}
    params = {f"W{gate}": rng.normal(size=(3, 5)) for gate in "zrn"}
    params |= {f"U{gate}": rng.normal(size=(5, 5)) for gate in "zrn"}
    return inputs, params | {f"b{gate}": rng.normal(size=5) for gate in "zrn"}, {}


def gru_parts(v):
    x, h = v["x"], v["h"]
    z = sigmoid(x @ v["Wz"] + h @ v["Uz"] + v["bz"])
    r = sigmoid(x @ v["Wr"] + h @ v["Ur"] + v["br"])
    n = np.tanh(x @ v["Wn"] + (r * h) @ v["Un"] + v["bn"])
    return z, r, n


def gru(v):
    z, _, n = gru_parts(v)
    return (1 - z) * n + z * v["h"]


def gru_backward(dy, v, direct=1, tanh_slope=1, sigmoid_slope=1):
    x, h = v["x"], v["h"]
    z, r, n = gru_parts(v)
    dn = dy * (1 - z) * ((1 - n**2) if tanh_slope else 1)
    dz = dy * (h - n) * (z * (1 - z) if sigmoid_slope else 1)
    drh = dn @ v["Un"].T
    dr = drh * h * r * (1 - r)
    return {
        "x": dz @ v["Wz"].T + dr @ v["Wr"].T + dn @ v["Wn"].T,
        "h": direct * dy * z + drh * r + dz @ v["Uz"].T + dr @ v["Ur"].T,
        "Wz": x.T @ dz,
        "Wr": x.T @ dr,
        "Wn": x.T @ dn,
        "Uz": h.T @ dz,
        "Ur": h.T @ dr,
        "Un": (r * h).T @ dn,
        "bz": dz.sum(0),
        "br": dr.sum(0),
        "bn": dn.sum(0),
    }


def gru_dbz_rows(dy, v):
    z, _, n = gru_parts(v)
    return dy * (v["h"] - n) * z * (1 - z)


def gru_dun_without_reset(dy, v):
    z, _, n = gru_parts(v)
    return v["h"].T @ (dy * (1 - z) * (1 - n**2))


GRU = HeldOut(
    "GRU cell",
    draw_gru,
    gru,
    gru_backward,
    [
        (
            "the old state's direct path left out",
            "missing path",
            "h",
            lambda dy, v, g: gru_backward(dy, v, direct=0)["h"],
        ),
        ("no slope of tanh", "missing factor", "bn", lambda dy, v, g: gru_backward(dy, v, tanh_slope=0)["bn"]),
        (
            "no slope of the sigmoid",
            "missing factor",
            "Wz",
            lambda dy, v, g: gru_backward(dy, v, sigmoid_slope=0)["Wz"],
        ),
        ("the gate pulls the wrong way", "sign", "Wz", lambda dy, v, g: -g["Wz"]),
        ("Wr given the gradient of Wz", "other array", "Wr", lambda dy, v, g: g["Wz"]),
        ("bz not summed over the batch", "missing sum", "bz", lambda dy, v, g: gru_dbz_rows(dy, v)),
        ("Un reads h, not r * h", "wrong value", "Un", lambda dy, v, g: gru_dun_without_reset(dy, v)),
        ("Uz transposed", "transposed", "Uz", lambda dy, v, g: g["Uz"].T),
        ("bz added to the gradient of the call before", "stale", "bz", lambda dy, v, g: g["bz"] + v["previous"]["bz"]),
        ("Wn of the call before", "stale", "Wn", lambda dy, v, g: v["previous"]["Wn"]),
    ],
)


# ---- max pooling over pairs: x (B, T, C) -> (B, T/2, C) ------------------------------------------------------------


def draw_pool(rng):
    return {"x": rng.normal(size=(3, 8, 5))}, {}, {}


def pairs(x):
    return x.reshape(x.shape[0], -1, 2, x.shape[2])


def max_pool(v):
    return pairs(v["x"]).max(2)


def max_pool_backward(dy, v):
    winner = pairs(v["x"]) == pairs(v["x"]).max(2, keepdims=True)
    return {"x": (winner * dy[:, :, None]).reshape(v["x"].shape)}


POOL = HeldOut(
    "max pooling",
    draw_pool,
    max_pool,
    max_pool_backward,
    [
        (
            "every entry of the window gets the gradient",
            "missing factor",
            "x",
            lambda dy, v, g: np.repeat(dy, 2, axis=1),
        ),
        ("the gradient of average pooling", "wrong derivative", "x", lambda dy, v, g: np.repeat(dy, 2, axis=1) / 2),
        (
            "the first entry of each window gets it",
            "wrong derivative",
            "x",
            lambda dy, v, g: (np.array([1, 0])[:, None] * dy[:, :, None]).reshape(v["x"].shape),
        ),
    ],
)


# ---- weight-normed linear: W = scale * direction / |direction|, x (B, T, I) ----------------------------------------


def draw_weight_norm(rng):
    return {"x": rng.normal(size=(2, 4, 5))}, {"direction": rng.normal(size=(5, 6)), "scale": rng.normal(size=6)}, {}


def weight_norm_parts(v):
    norm = np.sqrt((v["direction"] ** 2).sum(0))
    return v["direction"] / norm, norm


def weight_norm(v):
    return v["x"] @ (weight_norm_parts(v)[0] * v["scale"])


def weight_norm_backward(dy, v, project=1):
    unit, norm = weight_norm_parts(v)
    dw = np.einsum("bti,bto->io", v["x"], dy)
    return {
        "x": dy @ (unit * v["scale"]).T,
        "scale": (dw * unit).sum(0),
        "direction": v["scale"] / norm * (dw - project * unit * (unit * dw).sum(0)),
    }


WEIGHT_NORM = HeldOut(
    "weight-normed linear",
    draw_weight_norm,
    weight_norm,
    weight_norm_backward,
    [
        (
            "the norm is a constant",
            "missing term",
            "direction",
            lambda dy, v, g: weight_norm_backward(dy, v, project=0)["direction"],
        ),
        (
            "the direction's gradient without the scale",
            "missing factor",
            "direction",
            lambda dy, v, g: g["direction"] / v["scale"],
        ),
        (
            "the direction's gradient not divided by its norm",
            "missing factor",
            "direction",
            lambda dy, v, g: g["direction"] * weight_norm_parts(v)[1],
        ),
        ("the scale never filled in", "zero", "scale", lambda dy, v, g: np.zeros(6)),
        ("the scale pulls the wrong way", "sign", "scale", lambda dy, v, g: -g["scale"]),
    ],
)


# ---- outer-product attention: y = q (sum of k v) / sqrt(d_k), all (B, H, T, K) -------------------------------------


def draw_outer(rng):
    return {name: rng.normal(size=(2, 3, 5, 4)) for name in "qkv"}, {}, {"n_heads": 3}


def outer_attention(v):
    return v["q"] @ (v["k"].swapaxes(2, 3) @ v["v"]) / math.sqrt(v["q"].shape[-1])


def outer_backward(dy, v):
    dy = dy / math.sqrt(v["q"].shape[-1])
    dm = v["q"].swapaxes(2, 3) @ dy  # (B, H, K, K)
    return {"q": dy @ (v["v"].swapaxes(2, 3) @ v["k"]), "k": v["v"] @ dm.swapaxes(2, 3), "v": v["k"] @ dm}


def only_first_head(gradient):
    out = gradient.copy()
    out[:, 1:] = gradient[:, :1]
    return out


OUTER = HeldOut(
    "outer-product attention",
    draw_outer,
    outer_attention,
    outer_backward,
    [
        ("k and v swapped", "other array", "k", lambda dy, v, g: g["v"]),
        ("k without the scale", "constant factor", "k", lambda dy, v, g: g["k"] * math.sqrt(4)),
        (
            "the outer product not transposed for k",
            "wrong value",
            "k",
            lambda dy, v, g: v["v"] @ (v["q"].swapaxes(2, 3) @ dy) / math.sqrt(4),
        ),
        ("the last head is zero", "one head", "q", lambda dy, v, g: g["q"] * np.array([1, 1, 0])[:, None, None]),
        ("the first head's gradient in every head", "one head", "v", lambda dy, v, g: only_first_head(g["v"])),
        (
            "heads merged without a transpose",
            "reshaped",
            "q",
            lambda dy, v, g: g["q"].transpose(0, 2, 1, 3).reshape(g["q"].shape),
        ),
    ],
)


LAYERS = [
    GROUP_NORM,
    BILINEAR,
    GLU,
    CONV,
    GRU,
    POOL,
    WEIGHT_NORM,
    OUTER,
    SOFTPLUS,
    TANH,
    PRELU,
    HIGHWAY,
    MEAN,
    BAG,
    UNIT,
    SQUARES,
    PATCHES,
    OFFSET,
]
CASES = [(layer, *wrong) for layer in LAYERS for wrong in layer.wrong]
