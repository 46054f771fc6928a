"""Thirty-five wrong backwards of seven layers, beside the right ones, as plain functions `out, cache` / gradients.

Each `Case` holds a forward, its right backward, a function that draws inputs, and a dictionary of wrong backwards.
The kinds are those behind the comparison of gradient checkers in benchmarks/checkers.py; the code is written for this
file.
"""

import math
from dataclasses import dataclass

import numpy as np

EPS = 1e-5
ERF = np.vectorize(math.erf, otypes=[float])


@dataclass
class Case:
    name: str
    forward: object
    backward: object
    draw: object
    wrong: dict


# ---- softmax


def softmax(x):
    p = np.exp(x - x.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def softmax_forward(x):
    p = softmax(x)
    return p, p


def softmax_backward(dy, p):
    return p * (dy - (dy * p).sum(-1, keepdims=True))


SOFTMAX = {
    "zero": lambda dy, p: np.zeros_like(p),
    "only the diagonal": lambda dy, p: dy * p * (1 - p),
    "no sum term": lambda dy, p: dy * p,
    "sum over the wrong axis": lambda dy, p: p * (dy - (dy * p).sum(0, keepdims=True)),
    "divided by the batch": lambda dy, p: softmax_backward(dy, p) / len(p),
}

# ---- LayerNorm, at the gamma = 1 it starts with


def layer_norm_forward(x, gamma, beta):
    centred = x - x.mean(-1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + EPS)
    return centred * scale * gamma + beta, (centred * scale, scale, gamma)


def layer_norm_backward(dy, cache, mean=1, variance=1, with_gamma=True, with_scale=True, divisor=0):
    xhat, scale, gamma = cache
    g = dy * gamma if with_gamma else dy
    n = xhat.shape[-1]
    spread = xhat * (g * xhat).sum(-1, keepdims=True) / (n - divisor)
    dx = g - mean * g.mean(-1, keepdims=True) - variance * spread
    return (dx * scale if with_scale else dx), (dy * xhat).sum(0), dy.sum(0)


def _layer_norm(**options):
    return lambda dy, cache: layer_norm_backward(dy, cache, **options)


def _negated_dx(dy, cache):
    dx, dgamma, dbeta = layer_norm_backward(dy, cache)
    return -dx, dgamma, dbeta


def _dgamma_from_x(dy, cache):
    dx, _, dbeta = layer_norm_backward(dy, cache)
    return dx, (dy * cache[0] / cache[1]).sum(0), dbeta


def _dbeta_mean(dy, cache):
    dx, dgamma, _ = layer_norm_backward(dy, cache)
    return dx, dgamma, dy.mean(0)


LAYER_NORM = {
    "no mean path": _layer_norm(mean=0),
    "no variance path": _layer_norm(variance=0),
    "n - 1 in the variance path": _layer_norm(divisor=1),
    "sign of dx": _negated_dx,
    "forgets gamma": _layer_norm(with_gamma=False),  # the equivalent one where gamma = 1
    "no 1/sigma": _layer_norm(with_scale=False),
    "dgamma from x - mean": _dgamma_from_x,
    "dbeta averaged": _dbeta_mean,
}

# ---- linear


def linear_forward(x, w, b):
    return x @ w + b, (x, w)


def linear_backward(dy, cache):
    x, w = cache
    return dy @ w.T, x.T @ dy, dy.sum(0)


def _linear(change):
    def backward(dy, cache):
        gradients = list(linear_backward(dy, cache))
        change(gradients, dy, *cache)
        return tuple(gradients)

    return backward


def _scale_part(i, factor):
    def change(gradients, dy, x, w):
        gradients[i] = gradients[i] * factor

    return change


def _bias_entry(gradients, dy, x, w):
    gradients[2] = gradients[2] * np.where(np.arange(len(gradients[2])) == 1, 1.01, 1)


def _w_not_transposed(gradients, dy, x, w):
    gradients[0] = dy @ w


def _bias_mean(gradients, dy, x, w):
    gradients[2] = dy.mean(0)


def _dw_divided(gradients, dy, x, w):
    gradients[1] = gradients[1] / len(x)


LINEAR = {
    "dW divided by the batch": _linear(_dw_divided),
    "db averaged": _linear(_bias_mean),
    "W not transposed": _linear(_w_not_transposed),
    "one bias entry off by 1 %": _linear(_bias_entry),
    "dW off by 1 %": _linear(_scale_part(1, 1.01)),
    "dx doubled": _linear(_scale_part(0, 2)),
}

# ---- embedding; the ids are drawn with repetitions


def embedding_forward(ids, table):
    return table[ids] * math.sqrt(table.shape[1]), (ids, table.shape)


def embedding_backward(dy, cache):
    ids, shape = cache
    table = np.zeros(shape)
    np.add.at(table, ids, dy * math.sqrt(shape[1]))
    return None, table


def _fancy_add(dy, cache):
    ids, shape = cache
    table = np.zeros(shape)
    table[ids] += dy * math.sqrt(shape[1])
    return None, table


def _without_scale(dy, cache):
    return None, embedding_backward(dy, cache)[1] / math.sqrt(cache[1][1])


def _averaged_rows(dy, cache):
    ids, shape = cache
    counts = np.maximum(np.bincount(ids.ravel(), minlength=shape[0]), 1)
    return None, embedding_backward(dy, cache)[1] / counts[:, None]


def _shifted_rows(dy, cache):
    ids, shape = cache
    return embedding_backward(dy, ((ids + 1) % shape[0], shape))


EMBEDDING = {
    "repeated ids keep the last": _fancy_add,
    "no sqrt(d)": _without_scale,
    "rows averaged over their uses": _averaged_rows,
    "rows shifted by one": _shifted_rows,
}

# ---- attention with a causal mask


def attention_forward(q, k, v):
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    mask = np.tril(np.ones(s.shape[-2:], bool))
    p = softmax(np.where(mask, s, -np.inf))
    return p @ v, (q, k, v, p)


def attention_backward(
    dy, cache, scale_q=1.0, scale_k=1.0, diagonal=False, transpose_q=False, transpose_v=True, transpose_k=True
):
    q, k, v, p = cache
    dp = dy @ v.swapaxes(-1, -2)
    ds = dp * p * (1 - p) if diagonal else softmax_backward(dp, p)
    scale = 1 / math.sqrt(q.shape[-1])
    ds_q = ds.swapaxes(-1, -2) if transpose_q else ds
    ds_k = ds.swapaxes(-1, -2) if transpose_k else ds
    dv = (p.swapaxes(-1, -2) if transpose_v else p) @ dy
    return ds_q @ k * scale * scale_q, ds_k @ q * scale * scale_k, dv


def _attention(**options):
    return lambda dy, cache: attention_backward(dy, cache, **options)


ATTENTION = {
    "dq without 1/sqrt(d)": _attention(scale_q=math.sqrt(4)),
    "dk with 1/sqrt(d) twice": _attention(scale_k=1 / math.sqrt(4)),
    "only the diagonal of softmax": _attention(diagonal=True),
    "dS transposed for dq": _attention(transpose_q=True),
    "dS not transposed for dk": _attention(transpose_k=False),
    "P not transposed for dv": _attention(transpose_v=False),
}

# ---- residual + GELU: y = x + gelu(x)


def residual_gelu_forward(x):
    return x + x * 0.5 * (1 + ERF(x / math.sqrt(2))), x


def _gelu_slope(x):
    return 0.5 * (1 + ERF(x / math.sqrt(2))) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def residual_gelu_backward(dy, x):
    return dy + dy * _gelu_slope(x)


def _tanh_gelu_slope(x):
    c = math.sqrt(2 / math.pi)
    t = np.tanh(c * (x + 0.044715 * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x)


RESIDUAL_GELU = {
    "no residual path": lambda dy, x: dy * _gelu_slope(x),
    "slope of the tanh variant": lambda dy, x: dy + dy * _tanh_gelu_slope(x),
    "no x phi(x)": lambda dy, x: dy + dy * 0.5 * (1 + ERF(x / math.sqrt(2))),
}

# ---- cross-entropy, the mean over the tokens that are not padding (id 0)


def cross_entropy_forward(logits, targets):
    p = softmax(logits)
    counts = targets != 0
    picked = np.take_along_axis(p, targets[..., None], -1)[..., 0]
    return -(np.log(picked) * counts).sum() / counts.sum(), (p, targets, counts)


def cross_entropy_backward(dloss, cache, divisor=None, all_rows=False):
    p, targets, counts = cache
    d = p.copy()
    np.put_along_axis(d, targets[..., None], np.take_along_axis(d, targets[..., None], -1) - 1, -1)
    if not all_rows:
        d *= counts[..., None]
    return dloss * d / (counts.sum() if divisor is None else divisor(p)), None


CROSS_ENTROPY = {
    "sum instead of mean": lambda dl, cache: cross_entropy_backward(dl, cache, divisor=lambda p: 1),
    "padding counted in the mean": lambda dl, cache: cross_entropy_backward(
        dl, cache, divisor=lambda p: p[..., 0].size
    ),
    "gradient at padding": lambda dl, cache: cross_entropy_backward(dl, cache, all_rows=True),
}


def _targets(rng):
    targets = rng.integers(1, 5, (3, 4))
    targets[:, -1] = 0
    return targets


CASES = [
    Case("softmax", softmax_forward, softmax_backward, lambda r: [r.normal(size=(4, 6))], SOFTMAX),
    Case(
        "LayerNorm",
        layer_norm_forward,
        layer_norm_backward,
        lambda r: [r.normal(size=(4, 6)), np.ones(6), np.zeros(6)],
        LAYER_NORM,
    ),
    Case(
        "linear",
        linear_forward,
        linear_backward,
        lambda r: [r.normal(size=(4, 5)), r.normal(size=(5, 5)), r.normal(size=5)],
        LINEAR,
    ),
    Case(
        "embedding",
        embedding_forward,
        embedding_backward,
        lambda r: [np.array([[1, 1, 4], [r.integers(6), 4, 2]]), r.normal(size=(6, 3))],
        EMBEDDING,
    ),
    Case(
        "attention",
        attention_forward,
        attention_backward,
        lambda r: [r.normal(size=(2, 4, 4)) for _ in range(3)],
        ATTENTION,
    ),
    Case(
        "residual + GELU",
        residual_gelu_forward,
        residual_gelu_backward,
        lambda r: [r.normal(size=(4, 6))],
        RESIDUAL_GELU,
    ),
    Case(
        "cross-entropy",
        cross_entropy_forward,
        cross_entropy_backward,
        lambda r: [r.normal(size=(3, 4, 5)), _targets(r)],
        CROSS_ENTROPY,
    ),
]
