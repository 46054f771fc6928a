"""A residual block round one linear map f(x) = x W + b: post-norm, y = LN(x + f(x)), and pre-norm, y = x + f(LN(x))."""

from types import SimpleNamespace

from . import layer_norm, linear
from .museum import Layer

SHAPES = {"x": "... D", "W": "D D", "b": "D", "gamma": "D", "beta": "D"}
SETTINGS = {"eps": (1e-5, 1e-6, 1e-8, 1e-12)}


def draw(rng):
    values = {"x": rng.normal(size=(3, 4, 6)), "W": rng.normal(size=(6, 6)), "b": rng.normal(size=6)}
    return values | {"gamma": rng.normal(size=6), "beta": rng.normal(size=6), "eps": 1e-5}


def post_forward(x, W, b, gamma, beta, eps=1e-5):
    f, inner = linear.forward(x, W, b)
    y, norm = layer_norm.forward(x + f, gamma, beta, eps)
    return y, SimpleNamespace(x=x, inner=inner, norm=norm)


def post_parts(dy, c):
    norm = layer_norm.backward(dy, c.norm)
    return norm["x"], linear.backward(norm["x"], c.inner), norm


def post_backward(dy, c):
    dsum, f, norm = post_parts(dy, c)
    return {"x": dsum + f["x"], "W": f["W"], "b": f["b"], "gamma": norm["gamma"], "beta": norm["beta"]}


POST = Layer(
    "post-norm residual",
    "y = LN(x + f(x));  ds = LN backward of dy,  dx = ds + f backward of ds",
    SHAPES,
    ("x",),
    post_forward,
    post_backward,
    draw,
    settings=SETTINGS,
)


@POST.mistake(
    "missing path",
    source="YVSemlani/numpy-transformer, 61 of 75 gradients wrong",
    why="The sub-layer's backward is called, the + x is forgotten.",
    line="dx = ds + f backward: x was used twice",
    fix="add ds",
)
def skip_path_left_out(dy, c):
    """The residual path is missing in backward."""
    return {"x": post_parts(dy, c)[1]["x"]}


@POST.mistake(
    "missing path",
    why="The skip path is added, the sub-layer's own input gradient is dropped.",
    line="dx = ds + f backward: x was used twice",
    fix="add f's input gradient",
)
def branch_left_out(dy, c):
    """Only the residual path comes back."""
    return {"x": post_parts(dy, c)[0]}


@POST.mistake(
    "wrong value",
    why="The skip path is added before LayerNorm's backward, as in a pre-norm block.",
    line="the skip path lies inside the norm: ds, not dy",
    fix="add ds",
)
def skip_path_round_the_norm(dy, c):
    """The residual path carries dy, past the norm."""
    return {"x": dy + post_parts(dy, c)[1]["x"]}


@POST.mistake(
    "wrong value",
    source="BP-38 and Jessitoii/numpy-gpt, the other way round",
    why="The block's backward is that of a pre-norm block.",
    line="LN is the last step of forward, the first of backward",
    fix="go back through LN first",
)
def backward_of_a_pre_norm_block(dy, c):
    """Backward goes through the sub-layer first and the norm last, as for pre-norm."""
    f = linear.backward(dy, c.inner)
    norm = layer_norm.backward(f["x"], c.norm)
    return {"x": dy + norm["x"], "W": f["W"], "b": f["b"], "gamma": norm["gamma"], "beta": norm["beta"]}


@POST.mistake(
    "missing factor",
    why="LayerNorm's backward is called for γ and β only.",
    line="ds = LN backward of dy",
    fix="use the norm's input gradient",
)
def norm_skipped(dy, c):
    """The sub-layer gets dy, not the gradient behind the norm."""
    f = linear.backward(dy, c.inner)
    return {"x": dy + f["x"], "W": f["W"], "b": f["b"]}


@POST.mistake(
    "missing term",
    why="The skip path is added in the block and in the sub-layer.",
    line="dx = ds + f backward, once each",
    fix="add ds once",
)
def skip_path_twice(dy, c):
    """The residual path is added twice."""
    dsum, f, _ = post_parts(dy, c)
    return {"x": 2 * dsum + f["x"]}


def pre_forward(x, W, b, gamma, beta, eps=1e-5):
    n, norm = layer_norm.forward(x, gamma, beta, eps)
    f, inner = linear.forward(n, W, b)
    return x + f, SimpleNamespace(x=x, inner=inner, norm=norm)


def pre_backward(dy, c):
    f = linear.backward(dy, c.inner)
    norm = layer_norm.backward(f["x"], c.norm)
    return {"x": dy + norm["x"], "W": f["W"], "b": f["b"], "gamma": norm["gamma"], "beta": norm["beta"]}


PRE = Layer(
    "pre-norm residual",
    "y = x + f(LN(x));  dx = dy + LN backward of (f backward of dy)",
    SHAPES,
    ("x",),
    pre_forward,
    pre_backward,
    draw,
    settings=SETTINGS,
)


@PRE.mistake(
    "missing path",
    source="YVSemlani/numpy-transformer leaves out every residual path",
    why="The sub-layer's backward is called, the + x is forgotten.",
    line="dx = dy + ...: x was used twice",
    fix="add dy",
)
def skip_path_left_out_(dy, c):
    """The residual path is missing in backward: the difference is exactly dy."""
    return {"x": pre_backward(dy, c)["x"] - dy}


@PRE.mistake(
    "missing path",
    why="Only the highway of the residual stream is kept.",
    line="dx = dy + LN backward of (f backward of dy)",
    fix="add the branch's gradient",
)
def branch_left_out_(dy, c):
    """Only the residual path comes back: the gradient is exactly dy."""
    return {"x": dy.copy()}


@PRE.mistake(
    "missing factor",
    why="The branch's gradient is added without going back through its norm.",
    line="the branch starts with LN(x)",
    fix="go through LN's backward",
)
def norm_skipped_(dy, c):
    """The branch's gradient misses the norm's backward."""
    return {"x": dy + linear.backward(dy, c.inner)["x"]}


@PRE.mistake(
    "wrong value",
    source="BP-38 and Jessitoii/numpy-gpt train.py",
    why="A pre-norm forward is given the backward of a post-norm block.",
    line="forward: norm, sub-layer, add; backward: the same in reverse",
    fix="dy goes to the sub-layer first, then to the norm",
)
def backward_of_a_post_norm_block(dy, c):
    """Backward goes through the norm first, as for post-norm."""
    norm = layer_norm.backward(dy, c.norm)
    f = linear.backward(norm["x"], c.inner)
    return {"x": norm["x"] + f["x"], "W": f["W"], "b": f["b"], "gamma": norm["gamma"], "beta": norm["beta"]}


@PRE.mistake(
    "wrong value", why="x is at hand, LN(x) is not.", line="dW = LN(x)ᵀ dy: LN(x) is what met W", fix="keep LN(x)"
)
def weight_reads_x(dy, c):
    """W's gradient uses x in place of LN(x)."""
    return {"W": linear.rows(c.x).T @ linear.rows(dy)}


@PRE.mistake(
    "missing term",
    why="The skip path is added in the block and in the sub-layer.",
    line="dx = dy + ..., once",
    fix="add dy once",
)
def skip_path_twice_(dy, c):
    """The residual path is added twice: the difference is exactly dy."""
    return {"x": pre_backward(dy, c)["x"] + dy}
