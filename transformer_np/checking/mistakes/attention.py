"""Scaled dot-product attention: Y = P V, P = softmax(S), S = Q Kᵀ / √K, with a boolean mask and dropout on P."""

import math
from types import SimpleNamespace

import numpy as np

from .museum import Layer
from .softmax import total


def masked_softmax(scores, mask):
    """Softmax over the keys that may be attended to; a row that may attend to nothing gets zeros."""
    scores = np.where(mask, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    e = np.exp(scores - np.where(np.isfinite(top), top, 0))
    return e / np.maximum(e.sum(-1, keepdims=True), 1e-300)


def turned(a):
    """The last two axes swapped."""
    return np.swapaxes(a, -1, -2)


def forward(q, k, v, mask, causal=False):
    scale = 1 / math.sqrt(q.shape[-1])
    if causal:
        mask = mask & np.tri(q.shape[-2], k.shape[-2], k.shape[-2] - q.shape[-2], dtype=bool)
    P = masked_softmax(q @ turned(k) * scale, mask)
    return P @ v, SimpleNamespace(q=q, k=k, v=v, mask=mask, scale=scale, P=P)


def score_gradient(dy, c):
    """dS, the gradient of the scores before the scale: P (dP - Σ dP P) / √K."""
    dP = dy @ turned(c.v)
    return c.P * (dP - total(dP * c.P)) * c.scale


def spread(dS, dy, c):
    """From dS to the gradients of q, k and v."""
    return {"q": dS @ c.k, "k": turned(dS) @ c.q, "v": turned(c.P) @ dy}


def backward(dy, c):
    return spread(score_gradient(dy, c), dy, c)


def draw(rng):
    mask = np.ones((2, 1, 4, 5), bool)
    mask[0, :, :, 4] = mask[1, :, :2, 2] = False
    q, k, v = (rng.normal(size=(2, 3, *size)) for size in ((4, 6), (5, 6), (5, 7)))
    return {"q": q, "k": k, "v": v, "mask": mask, "causal": False}


ATTENTION = Layer(
    "attention",
    "S = Q Kᵀ/√K, P = softmax(S), Y = P V;  dV = Pᵀ dY,  dP = dY Vᵀ,  dS = P (dP - Σ dP P),  "
    "dQ = dS K/√K,  dK = dSᵀ Q/√K",
    {"q": "... T K", "k": "... S K", "v": "... S E", "mask": "?"},
    ("q", "k", "v", "mask"),
    forward,
    backward,
    draw,
    optional={"mask": True},
    settings={"causal": (False, True)},
)


@ATTENTION.mistake(
    "constant factor",
    source="BP-43's kin: FareedKhan-dev/train-llm-from-scratch PR#3",
    why="The scale was applied in forward only.",
    line="dQ = dS K / √K: the scale is a factor of S",
    fix="multiply dS by 1/√K",
    hidden_when="K = 1",
)
def scale_forgotten(dy, c):
    """1/√d_k is missing in backward: dQ and dK are too large."""
    dS = score_gradient(dy, c) / c.scale
    return {"q": dS @ c.k, "k": turned(dS) @ c.q}


@ATTENTION.mistake(
    "constant factor",
    why="q was stored after scaling, and dS is scaled too.",
    line="the scale occurs once",
    fix="scale once",
    hidden_when="K = 1",
)
def scaled_twice(dy, c):
    """1/√d_k is applied twice."""
    dS = score_gradient(dy, c) * c.scale
    return {"q": dS @ c.k, "k": turned(dS) @ c.q}


@ATTENTION.mistake(
    "constant factor",
    source="BP-43: aladdinpersson/Machine-Learning-Collection PR#159",
    why="d_k for √d_k.",
    line="the scale is 1/√K",
    fix="take the root",
    hidden_when="K = 1",
)
def divided_by_d_k(dy, c):
    """The gradient is divided by d_k, forward by √d_k."""
    dS = score_gradient(dy, c) * c.scale
    return {"q": dS @ c.k}


@ATTENTION.mistake(
    "reshaped",
    source="codiceSpaghetti/numpyGPT attention.py, 22 of 38 gradients wrong",
    why="dKᵀ = Qᵀ dS is (..., K, S), and is reshaped to (..., S, K) where its axes must be swapped.",
    line="dK = dSᵀ Q",
    fix="swap the last two axes, do not reshape",
)
def keys_reshaped(dy, c):
    """dK is computed transposed, then reshaped instead of transposed back."""
    dK = turned(c.q) @ score_gradient(dy, c)  # (..., K, S)
    return {"k": dK.reshape(c.k.shape)}


@ATTENTION.mistake(
    "missing term",
    source="BP-19 inside attention",
    why="Only the diagonal of softmax's Jacobian is used.",
    line="dS = P (dP - Σ dP P)",
    fix="use the whole Jacobian product",
)
def softmax_diagonal_only(dy, c):
    """The softmax is differentiated as if it were a sigmoid: P (1 - P) dP."""
    dP = dy @ turned(c.v)
    grads = spread(c.P * (1 - c.P) * dP * c.scale, dy, c)
    return {"q": grads["q"], "k": grads["k"]}


@ATTENTION.mistake(
    "missing term",
    why="The softmax's denominator is treated as a constant.",
    line="dS = P (dP - Σ dP P)",
    fix="subtract Σ dP P",
)
def softmax_sum_missing(dy, c):
    """The sum term of softmax's gradient is left out: P dP."""
    grads = spread(c.P * (dy @ turned(c.v)) * c.scale, dy, c)
    return {"q": grads["q"], "k": grads["k"]}


@ATTENTION.mistake(
    "missing factor",
    why="Softmax is passed by on the way back.",
    line="dS = P (dP - Σ dP P)",
    fix="go through softmax's backward",
)
def softmax_skipped(dy, c):
    """dP is used as dS: the softmax has no backward."""
    grads = spread(np.where(c.mask, dy @ turned(c.v), 0) * c.scale, dy, c)
    return {"q": grads["q"], "k": grads["k"]}


@ATTENTION.mistake(
    "wrong axis",
    source="BP-44: nerdai/llms-from-scratch-rs PR#30",
    why="Rows and columns of the scores are mixed.",
    line="Σ runs over the keys, as the softmax does",
    fix="sum over axis -1",
)
def softmax_sum_over_queries(dy, c):
    """The sum in softmax's gradient runs over the queries instead of the keys."""
    dP = dy @ turned(c.v)
    grads = spread(c.P * (dP - (dP * c.P).sum(-2, keepdims=True)) * c.scale, dy, c)
    return {"q": grads["q"], "k": grads["k"]}


@ATTENTION.mistake(
    "other array",
    why="(dQ, dK) is returned as (dK, dQ); shapes fit when T = S.",
    line="backward returns dq, dk, dv",
    fix="check the order",
)
def values_given_the_scores_path(dy, c):
    """dV is computed from dS instead of P."""
    return {"v": turned(score_gradient(dy, c)) @ dy}


@ATTENTION.mistake(
    "zero", why="dK was computed, but never handed on.", line="S = Q Kᵀ/√K depends on K", fix="return dK"
)
def keys_zero(dy, c):
    """dK is zero."""
    return {"k": np.zeros(c.k.shape)}


@ATTENTION.mistake(
    "sign",
    why="A minus of the softmax's Jacobian is pulled out and forgotten.",
    line="dS = + P (dP - Σ dP P)",
    fix="change the sign",
)
def queries_negated(dy, c):
    """dQ has the opposite sign."""
    return {"q": -(score_gradient(dy, c) @ c.k)}


@ATTENTION.mistake(
    "missing term",
    why="P is recomputed in backward without the mask.",
    line="P is the masked softmax of forward",
    fix="keep P, or apply the mask again",
    hidden_when="nothing is masked",
)
def mask_forgotten(dy, c):
    """Backward recomputes the weights without the mask, so masked keys get a gradient."""
    c = SimpleNamespace(**{**vars(c), "P": masked_softmax(c.q @ turned(c.k) * c.scale, np.True_)})
    return backward(dy, c)


@ATTENTION.mistake(
    "wrong value",
    why="P and P before the softmax are both called scores.",
    line="dV = Pᵀ dY",
    fix="use the weights after the softmax",
)
def values_read_the_scores(dy, c):
    """dV uses the scores before the softmax."""
    S = np.where(c.mask, c.q @ turned(c.k) * c.scale, 0)
    return {"v": turned(S) @ dy}


@ATTENTION.mistake(
    "missing factor",
    why="V's gradient is thought to be the upstream gradient shared out evenly.",
    line="dV = Pᵀ dY: each value is weighted by the attention it got",
    fix="multiply by Pᵀ",
)
def values_unweighted(dy, c):
    """dV gives each value the same part of dY, whatever attention it got."""
    return {"v": np.broadcast_to(dy.mean(-2, keepdims=True), c.v.shape).copy()}


@ATTENTION.mistake(
    "one head",
    why="A loop over the heads ends one too early.",
    line="every head has its own dQ",
    fix="loop over all heads",
    hidden_when="there is one head",
)
def last_head_left_out(dy, c):
    """dQ of the last head stays zero."""
    dq = score_gradient(dy, c) @ c.k
    dq[..., -1, :, :] = 0
    return {"q": dq}


@ATTENTION.mistake(
    "one head",
    why="The key of head 0 is used for every head, as in multi-query attention.",
    line="dQ of head h reads K of head h",
    fix="index the head",
    hidden_when="there is one head",
)
def keys_of_the_first_head(dy, c):
    """dQ reads the first head's keys for every head."""
    return {"q": score_gradient(dy, c) @ c.k[..., :1, :, :]}


@ATTENTION.mistake(
    "positions",
    why="The last row of a decoder is thought to have no successor.",
    line="every query has a gradient",
    fix="include the last row",
    hidden_when="the last query has no gradient",
)
def last_query_left_out(dy, c):
    """The last query takes no part in backward."""
    dS = score_gradient(dy, c)
    dS[..., -1, :] = 0
    return {"q": dS @ c.k}


@ATTENTION.mistake(
    "missing term",
    why="Masked scores are set to zero once more after the softmax's backward.",
    line="nothing: P is exactly 0 there, and so is dS",
    fix="none needed",
    hidden_when="always: dS = P (...) and P = 0 where masked",
    equivalent=True,
)
def scores_masked_again(dy, c):
    """dS is masked again, which changes nothing: it was zero there already."""
    return spread(np.where(c.mask, score_gradient(dy, c), 0), dy, c)


# ---- with dropout on the weights -----------------------------------------------------------------------------------


def dropped_forward(q, k, v, mask, keep, p):
    _, c = forward(q, k, v, mask)
    scaled = keep / (1 - p)
    return (c.P * scaled) @ v, SimpleNamespace(**vars(c), keep=scaled)


def dropped_backward(dy, c, weights_for_v=None, keep=None, softmax_weights=None):
    keep = c.keep if keep is None else keep
    P = c.P if softmax_weights is None else softmax_weights
    dP = dy @ turned(c.v) * keep
    dS = P * (dP - total(dP * P)) * c.scale
    dropped = c.P * c.keep if weights_for_v is None else weights_for_v
    return {"q": dS @ c.k, "k": turned(dS) @ c.q, "v": turned(dropped) @ dy}


def dropped_draw(rng):
    values = draw(rng)
    del values["causal"]
    return {**values, "keep": rng.random((2, 3, 4, 5)) > 0.3, "p": 0.3}


def infer(values, y):
    """p, read back from the output, which grows by 1/(1 - p)."""
    plain, _ = dropped_forward(**values, p=0.0)
    return {"p": float(1 - (plain * plain).sum() / (plain * y).sum())}


DROPPED = Layer(
    "attention with dropout",
    "Y = (P · keep/(1 - p)) V;  dV = (P · keep/(1 - p))ᵀ dY,  dP = dY Vᵀ · keep/(1 - p), then as before",
    {"q": "... T K", "k": "... S K", "v": "... S E", "mask": "?", "keep": "?"},
    ("q", "k", "v", "mask", "keep"),
    dropped_forward,
    dropped_backward,
    dropped_draw,
    optional={"mask": True},
    settings={"p": ()},
    infer=infer,
)


@DROPPED.mistake(
    "wrong value",
    source="Ultron09/Numpy-Transformer, grad_V uses the un-dropped weights",
    why="The weights are cached before dropout.",
    line="dV = (the weights that met V)ᵀ dY",
    fix="use the weights after dropout",
    hidden_when="p = 0",
)
def undropped_weights_for_v(dy, c):
    """dV uses the weights before dropout."""
    return {"v": dropped_backward(dy, c, weights_for_v=c.P)["v"]}


@DROPPED.mistake(
    "missing factor",
    why="Dropout's backward is left out between dY Vᵀ and the softmax.",
    line="dP = (dY Vᵀ) · keep/(1 - p)",
    fix="multiply by the mask",
    hidden_when="p = 0",
)
def mask_missing_on_the_weights(dy, c):
    """dP is not masked by dropout."""
    grads = dropped_backward(dy, c, keep=1.0)
    return {"q": grads["q"], "k": grads["k"]}


@DROPPED.mistake(
    "wrong value",
    why="One variable holds the weights before and after dropout.",
    line="softmax's backward needs its own output, before dropout",
    fix="keep P before dropout",
    hidden_when="p = 0",
)
def dropped_weights_in_the_softmax(dy, c):
    """Softmax's backward reads the weights after dropout."""
    grads = dropped_backward(dy, c, softmax_weights=c.P * c.keep)
    return {"q": grads["q"], "k": grads["k"]}


@DROPPED.mistake(
    "constant factor",
    why="The mask is applied without its scale.",
    line="dP = (dY Vᵀ) · keep/(1 - p)",
    fix="divide by 1 - p",
    hidden_when="p = 0",
)
def scale_missing_on_the_weights(dy, c):
    """dP is masked but not divided by 1 - p."""
    grads = dropped_backward(dy, c, keep=(c.keep > 0) * 1.0)
    return {"q": grads["q"], "k": grads["k"]}
