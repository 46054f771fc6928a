"""ReLU, GELU (exact and tanh) and SiLU: dx = f'(x) dy, entry by entry."""

import math
from types import SimpleNamespace

import numpy as np

from .museum import Layer

ROOT = math.sqrt(2 / math.pi)
erf = np.vectorize(math.erf, otypes=[float])


def draw(rng):
    return {"x": rng.normal(size=(3, 4, 7)) * 1.5}


def relu_forward(x):
    return np.maximum(x, 0), SimpleNamespace(x=x)


def relu_backward(dy, c):
    return {"x": dy * (c.x > 0)}


def normal_cdf(x):
    return (1 + erf(x / math.sqrt(2))) / 2


def normal_density(x):
    return np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def gelu_forward(x):
    return x * normal_cdf(x), SimpleNamespace(x=x)


def gelu_slope(x):
    return normal_cdf(x) + x * normal_density(x)


def gelu_backward(dy, c):
    return {"x": dy * gelu_slope(c.x)}


def tanh_part(x):
    return np.tanh(ROOT * (x + 0.044715 * x**3))


def gelu_tanh_forward(x):
    return x * (1 + tanh_part(x)) / 2, SimpleNamespace(x=x)


def gelu_tanh_slope(x, cubic=3 * 0.044715, root=ROOT):
    t = tanh_part(x)
    return (1 + t) / 2 + x * (1 - t**2) / 2 * root * (1 + cubic * x**2)


def gelu_tanh_backward(dy, c):
    return {"x": dy * gelu_tanh_slope(c.x)}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu_forward(x):
    return x * sigmoid(x), SimpleNamespace(x=x)


def silu_backward(dy, c):
    s = sigmoid(c.x)
    return {"x": dy * (s + c.x * s * (1 - s))}


X = {"x": "..."}
RELU = Layer("relu", "y = max(x, 0);  dx = dy where x > 0, else 0", X, ("x",), relu_forward, relu_backward, draw)
GELU = Layer("gelu", "y = x Φ(x);  dx = dy (Φ(x) + x φ(x))", X, ("x",), gelu_forward, gelu_backward, draw)
GELU_TANH = Layer(
    "gelu tanh",
    "y = x (1 + t)/2, t = tanh(√(2/π)(x + 0.044715 x³));  dx = dy ((1 + t)/2 + x (1 - t²)/2 √(2/π)(1 + 3·0.044715 x²))",
    X,
    ("x",),
    gelu_tanh_forward,
    gelu_tanh_backward,
    draw,
)
SILU = Layer("silu", "y = x σ(x);  dx = dy (σ + x σ (1 - σ))", X, ("x",), silu_forward, silu_backward, draw)


@RELU.mistake(
    "missing factor",
    why="Backward was written for the linear layers and passes ReLU by.",
    line="dx = dy · [x > 0]",
    fix="multiply by x > 0",
    hidden_when="every x is positive",
)
def slope_forgotten(dy, c):
    """The gradient passes everywhere."""
    return {"x": dy.copy()}


@RELU.mistake(
    "wrong derivative",
    source="guided backpropagation, a picture-making trick, taken for the gradient",
    why="max(dy, 0) looks like ReLU applied to the gradient.",
    line="the condition is on x, not on dy",
    fix="dy * (x > 0)",
)
def mask_of_the_gradient(dy, c):
    """Where dy is negative the gradient is cut, instead of where x is."""
    return {"x": dy * (dy > 0)}


@RELU.mistake(
    "wrong derivative",
    why="dx[x > 0] = 0 for dx[x < 0] = 0.",
    line="the gradient passes where x > 0",
    fix="turn the comparison round",
)
def mask_inverted(dy, c):
    """The gradient passes where x is negative."""
    return {"x": dy * (c.x <= 0)}


@RELU.mistake(
    "wrong derivative",
    why="ReLU's output is multiplied in, where its slope belongs.",
    line="the slope of max(x, 0) is 1, not x",
    fix="dy * (x > 0)",
)
def output_for_slope(dy, c):
    """dy is multiplied by max(x, 0)."""
    return {"x": dy * np.maximum(c.x, 0)}


@RELU.mistake(
    "wrong derivative",
    why="A leaky slope was left over from an experiment.",
    line="the slope is 0 where x < 0",
    fix="0, not 0.01",
    hidden_when="every x is positive",
)
def leaky(dy, c):
    """Negative entries let one hundredth through, forward lets nothing."""
    return {"x": dy * np.where(c.x > 0, 1, 0.01)}


@RELU.mistake(
    "wrong derivative",
    source="BP-61: at 0 any value between 0 and 1 is a subgradient",
    why="x >= 0 for x > 0.",
    line="nothing: at exactly 0 the slope is a matter of convention",
    fix="none needed",
    hidden_when="no x is exactly 0",
    equivalent=True,
)
def one_at_zero(dy, c):
    """The slope at exactly 0 is taken as 1."""
    return {"x": dy * (c.x >= 0)}


@GELU.mistake(
    "wrong derivative",
    source="BP-39: kyutai-labs/pocket-tts PR#278, karpathy/nanoGPT#2",
    why="Forward is the exact GELU, backward the tanh form; they differ by up to 5e-4, inside a 1e-3 tolerance.",
    line="the slope belongs to the variant that forward computes",
    fix="Φ(x) + x φ(x)",
)
def slope_of_the_tanh_form(dy, c):
    """The slope of the tanh approximation is used."""
    return {"x": dy * gelu_tanh_slope(c.x)}


@GELU.mistake(
    "wrong derivative", why="The product rule stops after its first term.", line="(x Φ)' = Φ + x φ", fix="add x φ(x)"
)
def product_rule_half_done(dy, c):
    """Only Φ(x) is used: x φ(x) is left out."""
    return {"x": dy * normal_cdf(c.x)}


@GELU.mistake("wrong derivative", why="The product rule's first term is lost.", line="(x Φ)' = Φ + x φ", fix="add Φ(x)")
def first_term_lost(dy, c):
    """Only x φ(x) is used: Φ(x) is left out."""
    return {"x": dy * c.x * normal_density(c.x)}


@GELU.mistake(
    "wrong derivative",
    why="The density is multiplied in without x.",
    line="x φ(x): the product rule keeps x",
    fix="multiply φ by x",
)
def density_without_x(dy, c):
    """φ(x) stands where x φ(x) belongs."""
    return {"x": dy * (normal_cdf(c.x) + normal_density(c.x))}


@GELU.mistake(
    "wrong derivative",
    why="The 1/√(2π) of the density is left out.",
    line="φ(x) = exp(-x²/2) / √(2π)",
    fix="divide by √(2π)",
)
def density_not_normalised(dy, c):
    """The normal density misses its 1/√(2π)."""
    return {"x": dy * (normal_cdf(c.x) + c.x * np.exp(-(c.x**2) / 2))}


@GELU.mistake("wrong derivative", why="GELU looks like ReLU.", line="the slope of x Φ(x)", fix="Φ(x) + x φ(x)")
def slope_of_relu(dy, c):
    """ReLU's slope is used."""
    return {"x": dy * (c.x > 0)}


@GELU.mistake(
    "missing factor",
    why="The activation was added to forward later.",
    line="dx = f'(x) dy",
    fix="multiply by the slope",
)
def gelu_slope_forgotten(dy, c):
    """The gradient passes unchanged."""
    return {"x": dy.copy()}


@GELU_TANH.mistake(
    "wrong derivative",
    source="BP-39, the other way round",
    why="Two variants, one backward.",
    line="the slope belongs to the variant that forward computes",
    fix="differentiate the tanh form",
)
def slope_of_the_exact_form(dy, c):
    """The slope of the exact GELU is used."""
    return {"x": dy * gelu_slope(c.x)}


@GELU_TANH.mistake(
    "wrong derivative",
    why="The 3 of (x³)' is forgotten.",
    line="(x + 0.044715 x³)' = 1 + 3·0.044715 x²",
    fix="multiply 0.044715 by 3",
)
def cubic_slope_without_three(dy, c):
    """The inner derivative uses 0.044715 x² in place of 3·0.044715 x²."""
    return {"x": dy * gelu_tanh_slope(c.x, cubic=0.044715)}


@GELU_TANH.mistake(
    "wrong derivative",
    why="The chain rule stops at tanh.",
    line="the inner derivative √(2/π)(1 + 3·0.044715 x²)",
    fix="multiply by the inner derivative",
)
def inner_derivative_missing(dy, c):
    """The derivative of tanh's argument is left out."""
    return {"x": dy * gelu_tanh_slope(c.x, cubic=0, root=1)}


@GELU_TANH.mistake(
    "wrong derivative",
    why="√(2/π) was left out of the inner derivative.",
    line="the inner derivative starts with √(2/π)",
    fix="multiply by √(2/π)",
)
def root_two_over_pi_missing(dy, c):
    """√(2/π) is missing in the inner derivative."""
    return {"x": dy * gelu_tanh_slope(c.x, root=1)}


@GELU_TANH.mistake(
    "wrong derivative", why="The derivative of tanh was written as 1 - t.", line="tanh' = 1 - t²", fix="square t"
)
def tanh_slope_without_square(dy, c):
    """1 - t is used where 1 - t² belongs."""
    t = tanh_part(c.x)
    return {"x": dy * ((1 + t) / 2 + c.x * (1 - t) / 2 * ROOT * (1 + 3 * 0.044715 * c.x**2))}


@SILU.mistake(
    "wrong derivative",
    why="The product rule stops after its first term.",
    line="(x σ)' = σ + x σ (1 - σ)",
    fix="add x σ (1 - σ)",
)
def gate_only(dy, c):
    """Only σ(x) is used."""
    return {"x": dy * sigmoid(c.x)}


@SILU.mistake(
    "wrong derivative",
    why="The sigmoid's own slope is used.",
    line="(x σ)' = σ + x σ (1 - σ)",
    fix="use the product rule",
)
def slope_of_the_sigmoid(dy, c):
    """The slope of the sigmoid, σ (1 - σ), is used."""
    s = sigmoid(c.x)
    return {"x": dy * s * (1 - s)}


@SILU.mistake(
    "wrong derivative", why="The x of the product rule is lost.", line="x σ (1 - σ): x stays", fix="multiply by x"
)
def second_term_without_x(dy, c):
    """σ + σ (1 - σ): the x in the second term is left out."""
    s = sigmoid(c.x)
    return {"x": dy * (s + s * (1 - s))}


@SILU.mistake(
    "wrong derivative",
    why="y = x σ is at hand, and σ + y (1 - σ) becomes y + σ (1 - y) with one name swapped.",
    line="dx = dy (σ + y (1 - σ)), with y = x σ",
    fix="swap y and σ back",
)
def output_and_gate_swapped(dy, c):
    """y + y (1 - σ) stands where σ + y (1 - σ) belongs."""
    s = sigmoid(c.x)
    return {"x": dy * (c.x * s + c.x * s * (1 - s))}


@SILU.mistake(
    "missing factor",
    why="The activation was added to forward later.",
    line="dx = f'(x) dy",
    fix="multiply by the slope",
)
def silu_slope_forgotten(dy, c):
    """The gradient passes unchanged."""
    return {"x": dy.copy()}
