"""RMSNorm: n = x / r, y = gamma n, with r = √(mean(x²) + eps). No mean is subtracted."""

from types import SimpleNamespace

import numpy as np

from .layer_norm import mean
from .linear import rows
from .museum import Layer


def forward(x, gamma, eps=1e-5):
    r = np.sqrt(mean(x**2) + eps)
    n = x / r
    return gamma * n, SimpleNamespace(x=x, gamma=gamma, n=n, r=r)


def backward(dy, c):
    dn = dy * c.gamma
    return {"x": (dn - c.n * mean(dn * c.n)) / c.r, "gamma": rows(dy * c.n).sum(0)}


def draw(rng):
    return {"x": rng.normal(size=(3, 4, 6)) * 2 + 1, "gamma": rng.normal(size=6), "eps": 1e-5}


RMS_NORM = Layer(
    "rms norm",
    "y = γ n, n = x / r;  with dn = γ dy: dx = (dn - n mean(dn n)) / r,  dγ = Σ dy n",
    {"x": "... D", "gamma": "D"},
    ("x",),
    forward,
    backward,
    draw,
    optional={"gamma": 1.0},
    settings={"eps": (1e-5, 1e-6, 1e-8, 1e-12, 1e-3, 0.0)},
)


@RMS_NORM.mistake(
    "missing term",
    why="The root mean square is treated as a constant.",
    line="the term - n mean(dn n): x_i also moves r",
    fix="subtract n mean(dn n)",
)
def square_term_missing(dy, c):
    """What flows back through the root mean square is left out."""
    return {"x": dy * c.gamma / c.r}


@RMS_NORM.mistake(
    "missing term",
    why="LayerNorm's backward is reused.",
    line="no mean was subtracted, so none flows back",
    fix="leave out the mean term",
)
def layer_norms_mean_term(dy, c):
    """The mean term of LayerNorm is there, though forward subtracts no mean."""
    dn = dy * c.gamma
    return {"x": (dn - mean(dn) - c.n * mean(dn * c.n)) / c.r}


@RMS_NORM.mistake(
    "missing term",
    why="Sum and mean are mixed.",
    line="r² is a mean over the D features",
    fix="divide by D",
    hidden_when="D = 1",
)
def sum_not_mean(dy, c):
    """The term of the root mean square is a sum over the features, not a mean."""
    dn = dy * c.gamma
    return {"x": (dn - c.n * (dn * c.n).sum(-1, keepdims=True)) / c.r}


@RMS_NORM.mistake(
    "missing term",
    why="A minus was lost in d(1/r) = - dr / r².",
    line="the term is subtracted",
    fix="subtract n mean(dn n)",
)
def square_term_added(dy, c):
    """The term of the root mean square is added instead of subtracted."""
    dn = dy * c.gamma
    return {"x": (dn + c.n * mean(dn * c.n)) / c.r}


@RMS_NORM.mistake(
    "missing factor",
    why="The derivation was made without γ.",
    line="dn = γ dy",
    fix="multiply dy by γ first",
    hidden_when="γ = 1, as at the start of training",
)
def gamma_forgotten(dy, c):
    """γ does not occur in the input's gradient."""
    return {"x": (dy - c.n * mean(dy * c.n)) / c.r}


@RMS_NORM.mistake(
    "wrong value",
    source="AkiRusProd's LayerNorm, carried over",
    why="γ is pulled out of the mean.",
    line="dn = γ dy stands inside the mean",
    fix="multiply by γ before the mean",
    hidden_when="γ is the same for every feature",
)
def gamma_outside_the_mean(dy, c):
    """γ multiplies the result instead of the gradient inside the mean."""
    return {"x": c.gamma * (dy - c.n * mean(dy * c.n)) / c.r}


@RMS_NORM.mistake(
    "wrong value",
    why="x and n are mixed: 1/r³ was expected to carry the rest.",
    line="the term is n mean(dn n), and n = x / r in both places",
    fix="use n twice",
    hidden_when="r = 1",
)
def square_term_reads_x(dy, c):
    """The term of the root mean square uses x in place of n once."""
    dn = dy * c.gamma
    return {"x": (dn - c.n * mean(dn * c.x)) / c.r}


@RMS_NORM.mistake(
    "missing factor",
    why="The last division is lost.",
    line="everything is divided by r",
    fix="divide by r",
    hidden_when="r = 1",
)
def not_divided(dy, c):
    """The division by the root mean square is left out."""
    dn = dy * c.gamma
    return {"x": dn - c.n * mean(dn * c.n)}


@RMS_NORM.mistake("wrong value", why="x is at hand, n is not.", line="dγ = Σ dy n", fix="multiply by n")
def gamma_reads_x(dy, c):
    """γ's gradient multiplies dy by x instead of the normalised n."""
    return {"gamma": rows(dy * c.x).sum(0)}


@RMS_NORM.mistake(
    "missing sum",
    why="Broadcasting hides that every token shares γ.",
    line="dγ sums over every token",
    fix="sum over every axis but the last",
)
def gamma_not_summed(dy, c):
    """γ's gradient has the shape of x."""
    return {"gamma": dy * c.n}
