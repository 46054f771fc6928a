"""Multi-head attention: Y = merge(attention(heads of q Wq, k Wk, v Wv)) Wo. Self-attention: q = k = v = x."""

from types import SimpleNamespace

import numpy as np

from . import attention
from .linear import rows
from .museum import Layer

WEIGHTS = {"w_q": "D D", "w_k": "D D", "w_v": "D D", "w_o": "D D"}
BIASES = {"b_q": "D", "b_k": "D", "b_v": "D", "b_o": "D"}
OPTIONAL = {"b_q": 0.0, "b_k": 0.0, "b_v": 0.0, "b_o": 0.0, "mask": True}


def split(x, heads):
    """(B, T, D) -> (B, H, T, K)"""
    B, T, D = x.shape
    return x.reshape(B, T, heads, D // heads).transpose(0, 2, 1, 3)


def merge(x):
    """(B, H, T, K) -> (B, T, D)"""
    B, H, T, K = x.shape
    return x.transpose(0, 2, 1, 3).reshape(B, T, H * K)


def forward(query, key, value, w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o, mask, n_heads, causal=False):
    q, k, v = (split(x @ w + b, n_heads) for x, w, b in ((query, w_q, b_q), (key, w_k, b_k), (value, w_v, b_v)))
    heads, inner = attention.forward(q, k, v, mask, causal)
    joined = merge(heads)
    cache = SimpleNamespace(
        query=query,
        key=key,
        value=value,
        w_q=w_q,
        w_k=w_k,
        w_v=w_v,
        w_o=w_o,
        n_heads=n_heads,
        inner=inner,
        joined=joined,
    )
    return joined @ w_o + b_o, cache


def head_gradients(dy, c, split=split, attend=attention.backward):
    """Gradients of the split q, k and v."""
    return attend(split(dy @ c.w_o.T, c.n_heads), c.inner)


def project(dheads, dy, c, merge=merge):
    """From the gradients of the heads to those of the inputs, weights and biases."""
    out = {"w_o": rows(c.joined).T @ rows(dy), "b_o": rows(dy).sum(0)}
    for name, letter in (("query", "q"), ("key", "k"), ("value", "v")):
        d = merge(dheads[letter])
        out[name] = d @ getattr(c, f"w_{letter}").T
        out[f"w_{letter}"] = rows(getattr(c, name)).T @ rows(d)
        out[f"b_{letter}"] = rows(d).sum(0)
    return out


def backward(dy, c):
    return project(head_gradients(dy, c), dy, c)


def weights(rng, D):
    values = {name: rng.normal(size=(D, D)) / np.sqrt(D) for name in WEIGHTS}
    return values | {name: rng.normal(size=D) for name in BIASES}


def draw(rng):
    mask = np.ones((2, 1, 3, 5), bool)
    mask[0, :, :, 4] = False
    query, key, value = (rng.normal(size=(2, length, 8)) for length in (3, 5, 5))
    return {"query": query, "key": key, "value": value, **weights(rng, 8), "mask": mask, "n_heads": 2, "causal": False}


SETTINGS = {"n_heads": (1, 2, 3, 4, 6, 8), "causal": (False, True)}
MULTI_HEAD = Layer(
    "multi-head attention",
    "Y = merge(attention(split(q Wq), split(k Wk), split(v Wv))) Wo;  each step back in reverse order",
    {"query": "B T D", "key": "B S D", "value": "B S D", **WEIGHTS, **BIASES, "mask": "?"},
    ("query", "key", "value", "mask"),
    forward,
    backward,
    draw,
    optional=OPTIONAL,
    settings=SETTINGS,
)


def only(grads, *names):
    """These gradients alone."""
    return {name: grads[name] for name in names}


@MULTI_HEAD.mistake(
    "reshaped",
    source="BP-41: jsbaan/transformer-from-scratch PR#6",
    why="(B, H, T, K) is reshaped to (B, T, D) at once, which mixes positions and heads.",
    line="merging is a transpose and then a reshape",
    fix="transpose(0, 2, 1, 3) before the reshape",
    hidden_when="one head, or T = 1",
)
def heads_merged_without_a_transpose(dy, c):
    """Backward merges the heads' gradients by a reshape alone."""
    flat = project(head_gradients(dy, c), dy, c, merge=lambda d: d.reshape(d.shape[0], d.shape[2], -1))
    return only(flat, "query", "key", "value", "w_q", "w_k", "w_v")


@MULTI_HEAD.mistake(
    "reshaped",
    source="BP-42: reczoo/FuxiCTR#30, hyunwoongko/transformer#15",
    why="dY Woᵀ is split by reshape(B, H, T, K) at once.",
    line="splitting is a reshape and then a transpose",
    fix="reshape(B, T, H, K).transpose(0, 2, 1, 3)",
    hidden_when="one head, or T = 1",
)
def heads_split_without_a_transpose(dy, c):
    """Backward splits the upstream gradient by a reshape alone."""
    heads = head_gradients(dy, c, split=lambda x, h: x.reshape(x.shape[0], h, x.shape[1], -1))
    return {name: g for name, g in project(heads, dy, c).items() if name not in ("w_o", "b_o", "b_k")}


@MULTI_HEAD.mistake(
    "transposed",
    source="BP-71: two layouts of one square weight",
    why="dWo = dYᵀ joined: the weight is square, no shape complains.",
    line="dWo = joinedᵀ dY",
    fix="joined.T @ dy",
)
def output_weight_transposed(dy, c):
    """Wo's gradient is transposed, which a square weight does not betray."""
    return {"w_o": rows(dy).T @ rows(c.joined)}


@MULTI_HEAD.mistake(
    "other array",
    why="Two lines were copied and one name was not changed.",
    line="dWk comes from dK, dWq from dQ",
    fix="use each head gradient with its own weight",
)
def query_and_key_weights_swapped(dy, c):
    """Wq and Wk have each other's gradient."""
    grads = backward(dy, c)
    return {"w_q": grads["w_k"], "w_k": grads["w_q"]}


@MULTI_HEAD.mistake(
    "constant factor",
    source="BP-43: √d_model for √d_k",
    why="d_model is at hand, d_k is not.",
    line="the scale is 1/√d_k, d_k = D/H",
    fix="use the width of one head",
    hidden_when="one head",
)
def scaled_by_d_model(dy, c):
    """Backward scales by 1/√d_model, forward by 1/√d_k."""
    heads = head_gradients(dy, c)
    heads = {**heads, "q": heads["q"] / np.sqrt(c.n_heads), "k": heads["k"] / np.sqrt(c.n_heads)}
    return only(project(heads, dy, c), "query", "key", "w_q", "w_k", "b_q")


@MULTI_HEAD.mistake(
    "one head",
    why="A loop over the heads starts at 1.",
    line="every head sends its gradient back",
    fix="loop over all heads",
)
def first_head_left_out(dy, c):
    """The first head sends nothing back to its values."""
    heads = head_gradients(dy, c)
    dv = heads["v"].copy()
    dv[:, 0] = 0
    return only(project({**heads, "v": dv}, dy, c), "value", "w_v", "b_v")


@MULTI_HEAD.mistake(
    "wrong value",
    why="The input's name is reused for the joined heads.",
    line="dWo = joinedᵀ dY: joined is what met Wo",
    fix="keep the joined heads",
)
def output_weight_reads_the_query(dy, c):
    """Wo's gradient is computed with the layer's input instead of the joined heads."""
    return {"w_o": rows(c.query).T @ rows(dy)}


@MULTI_HEAD.mistake(
    "missing sum", why="Written for one sequence.", line="dbo sums over every token", fix="sum over batch and time"
)
def output_bias_summed_over_the_batch_only(dy, c):
    """bo's gradient keeps the time axis."""
    return {"b_o": dy.sum(0)}


@MULTI_HEAD.mistake(
    "missing factor",
    why="The output projection is passed by on the way back.",
    line="dJoined = dY Woᵀ",
    fix="multiply by Woᵀ first",
)
def output_projection_skipped(dy, c):
    """dY enters the heads without going through Wo."""
    heads = attention.backward(split(dy, c.n_heads), c.inner)
    return {name: g for name, g in project(heads, dy, c).items() if name not in ("w_o", "b_o", "b_k")}


# ---- self-attention ------------------------------------------------------------------------------------------------


def self_forward(x, w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o, mask, n_heads, causal=False):
    return forward(x, x, x, w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o, mask, n_heads, causal)


def summed(grads, paths=("query", "key", "value")):
    """x is query, key and value at once: its gradient is the sum of theirs."""
    out = {name: g for name, g in grads.items() if name not in ("query", "key", "value")}
    return {"x": sum(grads[path] for path in paths), **out}


def self_backward(dy, c):
    return summed(backward(dy, c))


def self_draw(rng):
    values = {"x": rng.normal(size=(2, 4, 6)), **weights(rng, 6)}
    return {**values, "mask": np.array(True), "n_heads": 3, "causal": True}


SELF = Layer(
    "self-attention",
    "Y = multi-head attention of x with itself;  dx = dq Wqᵀ + dk Wkᵀ + dv Wvᵀ",
    {"x": "B T D", **WEIGHTS, **BIASES, "mask": "?"},
    ("x", "mask"),
    self_forward,
    self_backward,
    self_draw,
    optional=OPTIONAL,
    settings=SETTINGS,
)

PATHS = {
    "why": "x is read three times, and the gradients are assigned, not added: one overwrites another.",
    "line": "dx has three summands: x was query, key and value",
    "fix": "dx = dq Wqᵀ + dk Wkᵀ + dv Wvᵀ",
    "source": "BP-49: karpathy/nn-zero-to-hero#52, = for +=",
}


@SELF.mistake("missing path", **PATHS)
def query_path_left_out(dy, c):
    """The path through the queries is missing."""
    return {"x": summed(backward(dy, c), ("key", "value"))["x"]}


@SELF.mistake("missing path", **PATHS)
def key_path_left_out(dy, c):
    """The path through the keys is missing."""
    return {"x": summed(backward(dy, c), ("query", "value"))["x"]}


@SELF.mistake("missing path", **PATHS)
def value_path_left_out(dy, c):
    """The path through the values is missing."""
    return {"x": summed(backward(dy, c), ("query", "key"))["x"]}


@SELF.mistake("missing path", **PATHS)
def only_the_value_path(dy, c):
    """Only the path through the values comes back: the attention weights are treated as constants."""
    return {"x": backward(dy, c)["value"]}


@SELF.mistake(
    "reshaped",
    source="codiceSpaghetti/numpyGPT attention.py",
    why="dKᵀ = Qᵀ dS is reshaped, not transposed back.",
    line="dK = dSᵀ Q",
    fix="swap the last two axes",
)
def keys_reshaped(dy, c):
    """The keys' gradient is reshaped from (..., K, T) to (..., T, K)."""
    heads = head_gradients(dy, c, attend=lambda d, i: {**attention.backward(d, i), **attention.keys_reshaped(d, i)})
    return only(summed(project(heads, dy, c)), "x", "w_k", "b_k")


@SELF.mistake(
    "missing term",
    source="BP-19 inside attention",
    why="Only the diagonal of softmax's Jacobian is used.",
    line="dS = P (dP - Σ dP P)",
    fix="use the whole Jacobian product",
)
def softmax_diagonal_only(dy, c):
    """The softmax is differentiated as if it were a sigmoid."""

    def diagonal(dy, inner):
        return {**attention.backward(dy, inner), **attention.softmax_diagonal_only(dy, inner)}

    heads = head_gradients(dy, c, attend=diagonal)
    return only(summed(project(heads, dy, c)), "x", "w_q", "w_k")
