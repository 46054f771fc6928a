"""LayerNorm: n = (x - mean) / s, y = gamma n + beta, with s = √(variance + eps)."""

from types import SimpleNamespace

import numpy as np

from .linear import rows
from .museum import OWN, Layer


def forward(x, gamma, beta, eps=1e-5):
    centred = x - x.mean(-1, keepdims=True)
    s = np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    n = centred / s
    return gamma * n + beta, SimpleNamespace(x=x, gamma=gamma, n=n, s=s)


def mean(a):
    return a.mean(-1, keepdims=True)


def backward(dy, c):
    dn = dy * c.gamma
    dx = (dn - mean(dn) - c.n * mean(dn * c.n)) / c.s
    return {"x": dx, "gamma": rows(dy * c.n).sum(0), "beta": rows(dy).sum(0)}


def draw(rng):
    x = rng.normal(size=(3, 4, 6)) * 2 + 1
    return {"x": x, "gamma": rng.normal(size=6), "beta": rng.normal(size=6), "eps": 1e-5}


LAYER_NORM = Layer(
    "layer norm",
    "y = γ n + β, n = (x - mean) / s;  with dn = γ dy: dx = (dn - mean(dn) - n mean(dn n)) / s,  "
    "dγ = Σ dy n,  dβ = Σ dy",
    {"x": "... D", "gamma": "D", "beta": "D"},
    ("x",),
    forward,
    backward,
    draw,
    optional={"gamma": 1.0, "beta": 0.0},
    settings={"eps": (1e-5, 1e-6, 1e-8, 1e-12, 1e-3, 0.0)},
)


@LAYER_NORM.mistake(
    "missing term",
    why="The mean is treated as a constant: x - mean is differentiated as x.",
    line="the term - mean(dn): x_i also moves the mean, which every output reads",
    fix="subtract mean(dn)",
)
def mean_term_missing(dy, c):
    """What flows back through the mean is left out."""
    dn = dy * c.gamma
    return {"x": (dn - c.n * mean(dn * c.n)) / c.s}


@LAYER_NORM.mistake(
    "missing term",
    why="The variance is treated as a constant.",
    line="the term - n mean(dn n): x_i also moves the variance, which every output reads",
    fix="subtract n mean(dn n)",
)
def variance_term_missing(dy, c):
    """What flows back through the variance is left out."""
    dn = dy * c.gamma
    return {"x": (dn - mean(dn)) / c.s}


@LAYER_NORM.mistake(
    "missing term",
    why="Normalising is read as dividing by constants.",
    line="both terms that come from the statistics",
    fix="subtract mean(dn) and n mean(dn n)",
)
def statistics_are_constants(dy, c):
    """Mean and variance are both treated as constants."""
    return {"x": dy * c.gamma / c.s}


@LAYER_NORM.mistake(
    "wrong value",
    source="AkiRusProd/numpy-transformer layer_norm.py",
    why="γ is pulled out of the means, as if it were the same for every feature.",
    line="dn = γ dy stands inside the means",
    fix="multiply by γ before taking the means",
    hidden_when="γ is the same for every feature, as at the start of training",
)
def gamma_outside_the_means(dy, c):
    """γ multiplies the result instead of the gradient inside the means."""
    return {"x": c.gamma * (dy - mean(dy) - c.n * mean(dy * c.n)) / c.s}


@LAYER_NORM.mistake(
    "missing factor",
    source="BP-81 and the table in gradient-checking notes: cannot be seen at γ = 1",
    why="The derivation was made without γ, and the test had γ = 1.",
    line="dn = γ dy",
    fix="multiply dy by γ first",
    hidden_when="γ = 1, as at the start of training",
)
def gamma_forgotten(dy, c):
    """γ does not occur in the input's gradient."""
    return {"x": (dy - mean(dy) - c.n * mean(dy * c.n)) / c.s}


@LAYER_NORM.mistake(
    "missing term",
    source="BP-35: harvardnlp/annotated-transformer#122 (unbiased std)",
    why="std(ddof=1) divides by D - 1, forward divides by D.",
    line="the variance term is a mean over D",
    fix="divide by D, as forward does",
)
def divided_by_d_minus_one(dy, c):
    """The variance term is divided by D - 1 instead of D."""
    dn, D = dy * c.gamma, dy.shape[-1]
    return {"x": (dn - mean(dn) - c.n * (dn * c.n).sum(-1, keepdims=True) / (D - 1)) / c.s}


@LAYER_NORM.mistake(
    "missing term",
    why="The 2 of the square is kept, the 1/2 of the root is forgotten.",
    line="d√v = dv / (2 √v) cancels the 2 of the square",
    fix="the variance term has weight 1",
)
def variance_term_doubled(dy, c):
    """The variance term is counted twice."""
    dn = dy * c.gamma
    return {"x": (dn - mean(dn) - 2 * c.n * mean(dn * c.n)) / c.s}


@LAYER_NORM.mistake(
    "missing term",
    why="A minus was lost on the way from d(1/s) to the last line.",
    line="d(1/s) = - ds / s²: the variance term is subtracted",
    fix="subtract n mean(dn n)",
)
def variance_term_added(dy, c):
    """The variance term is added instead of subtracted."""
    dn = dy * c.gamma
    return {"x": (dn - mean(dn) + c.n * mean(dn * c.n)) / c.s}


@LAYER_NORM.mistake(
    "missing term",
    why="Sums and means are mixed: the 1/D is forgotten in both terms.",
    line="both terms are means over the D features",
    fix="divide by D",
    hidden_when="D = 1",
)
def sums_not_means(dy, c):
    """The two terms are sums over the features, not means."""
    dn = dy * c.gamma
    total = dn.sum(-1, keepdims=True) + c.n * (dn * c.n).sum(-1, keepdims=True)
    return {"x": (dn - total) / c.s}


@LAYER_NORM.mistake(
    "wrong value",
    why="The mean is taken of dy, where dn was meant.",
    line="the term - mean(dn), with dn = γ dy",
    fix="mean(dy γ)",
    hidden_when="γ = 1",
)
def mean_of_dy(dy, c):
    """The mean term reads dy instead of γ dy."""
    dn = dy * c.gamma
    return {"x": (dn - mean(dy) - c.n * mean(dn * c.n)) / c.s}


@LAYER_NORM.mistake(
    "wrong value",
    why="The centred x is kept in place of the normalised one.",
    line="the variance term has n twice, and n is divided by s",
    fix="use n = (x - mean) / s in both places",
    hidden_when="the variance is 1",
)
def variance_term_reads_the_centred_x(dy, c):
    """The variance term uses x - mean, without dividing by s."""
    dn, centred = dy * c.gamma, c.n * c.s
    return {"x": (dn - mean(dn) - centred * mean(dn * centred)) / c.s}


@LAYER_NORM.mistake(
    "missing factor",
    why="The last division is lost when the three terms are gathered.",
    line="everything is divided by s",
    fix="divide by s",
    hidden_when="the variance is 1",
)
def not_divided_by_the_deviation(dy, c):
    """The division by s is left out."""
    dn = dy * c.gamma
    return {"x": dn - mean(dn) - c.n * mean(dn * c.n)}


@LAYER_NORM.mistake(
    "missing factor",
    why="The variance was kept where its root was meant.",
    line="everything is divided by s = √(variance + eps), once",
    fix="divide by s",
    hidden_when="the variance is 1",
)
def divided_by_the_variance(dy, c):
    """The gradient is divided by s² instead of s."""
    dn = dy * c.gamma
    return {"x": (dn - mean(dn) - c.n * mean(dn * c.n)) / c.s**2}


@LAYER_NORM.mistake(
    "wrong axis",
    why="Batch norm's formula was copied: its means run over the batch.",
    line="the means run over the features of one token",
    fix="axis=-1, keepdims=True",
)
def means_over_the_batch(dy, c):
    """The means run over the first axis, as in batch norm."""
    dn = dy * c.gamma
    dx = (dn - dn.mean(0, keepdims=True) - c.n * (dn * c.n).mean(0, keepdims=True)) / c.s
    return {"x": dx}


@LAYER_NORM.mistake(
    "sign",
    why="The sign of the whole expression flips with the sign of the variance term.",
    line="dx starts with + dn",
    fix="change the sign",
)
def input_negated(dy, c):
    """The input's gradient has the opposite sign; a check with an all-ones upstream cannot see it."""
    return {"x": -backward(dy, c)["x"]}


@LAYER_NORM.mistake(
    "wrong value",
    why="x is at hand in the cache, n is not.",
    line="dγ = Σ dy n, because y = γ n + β",
    fix="multiply by n",
)
def gamma_reads_x(dy, c):
    """γ's gradient multiplies dy by x instead of the normalised n."""
    return {"gamma": rows(dy * c.x).sum(0)}


@LAYER_NORM.mistake("other array", why="β's line was copied.", line="dγ = Σ dy n", fix="multiply by n")
def gamma_given_the_gradient_of_beta(dy, c):
    """γ's gradient is the sum of dy, which is β's."""
    return {"gamma": rows(dy).sum(0)}


@LAYER_NORM.mistake(
    "other array",
    why="The two are returned in the other order.",
    line="backward returns dx, dγ, dβ",
    fix="check the order of the returned gradients",
)
def gamma_and_beta_swapped(dy, c):
    """γ and β have each other's gradient."""
    return {"gamma": rows(dy).sum(0), "beta": rows(dy * c.n).sum(0)}


@LAYER_NORM.mistake(
    "missing sum",
    why="The layer was tested on (N, D), then fed (B, T, D).",
    line="dγ sums over every token",
    fix="sum over every axis but the last",
)
def gamma_summed_over_the_batch_only(dy, c):
    """γ's gradient keeps the time axis."""
    return {"gamma": (dy * c.n).sum(0)}


@LAYER_NORM.mistake(
    "missing sum",
    why="Broadcasting hides that every token shares γ.",
    line="dγ sums over every token",
    fix="sum over every axis but the last",
)
def gamma_not_summed(dy, c):
    """γ's gradient has the shape of x."""
    return {"gamma": dy * c.n}


@LAYER_NORM.mistake(
    "constant factor", why="A mean over the tokens is taken for a sum.", line="dβ = Σ dy", fix="sum, do not average"
)
def beta_averaged(dy, c):
    """β's gradient is the mean over the tokens."""
    return {"beta": rows(dy).mean(0)}


@LAYER_NORM.mistake(
    "zero",
    source="dbrll/BareGPT, and TinyTorch PR#1504: γ and β never learned",
    why="γ and β are stored, but backward never fills their gradient.",
    line="γ and β are parameters",
    fix="store dγ and dβ",
)
def gamma_and_beta_never_filled(dy, c):
    """γ and β get no gradient."""
    return {"gamma": np.zeros(c.gamma.shape), "beta": np.zeros(c.gamma.shape)}


@LAYER_NORM.mistake(
    "zero",
    source=OWN,
    why="Seen with an upstream of ones: the right answer is zero there, so zeros pass.",
    line="dx is zero only for an upstream that is constant along the features",
    fix="write dx; check with a random upstream",
)
def input_zero(dy, c):
    """The input's gradient is zero, which a sum of the outputs cannot tell from right."""
    return {"x": np.zeros(dy.shape)}
