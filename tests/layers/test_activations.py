"""GELU, SiLU, sigmoid and tanh: values worked out elsewhere, finite differences, PyTorch, and NumPy's odd corners."""

import math

import numpy as np
import pytest
from finite_differences import assert_gradients

from transformer_np.layers import GELU, ReLU, Sigmoid, SiLU, Tanh
from transformer_np.layers.gelu import normal_cdf

LAYERS = {
    "GELU": GELU,
    "GELU, tanh": lambda **options: GELU("tanh", **options),
    "SiLU": SiLU,
    "Sigmoid": Sigmoid,
    "Tanh": Tanh,
}


def both_variants(x):
    """The two GELUs of a number by math.erf and math.tanh, straight from the paper's formulas."""
    exact = 0.5 * x * (1 + math.erf(x / math.sqrt(2)))
    return exact, 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("name", LAYERS)
def test_gradients(name, device):
    x = 2 * np.random.default_rng(0).standard_normal((3, 4, 5))
    if device != "numpy":
        import cupy

        x = cupy.asarray(x)
    assert_gradients(LAYERS[name](), (x,))


def test_normal_cdf_on_a_dense_grid():
    x = np.linspace(-9, 9, 100_003)
    expected = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in x])
    assert abs(normal_cdf(x) - expected).max() < 3e-16  # one rounding of a number near 1, and a little
    assert (abs(normal_cdf(x) / expected - 1)).max() < 1e-12  # also where it is 1e-19: no digits cancel
    single = x.astype("float32")
    expected = np.array([0.5 * math.erfc(-float(value) / math.sqrt(2)) for value in single])
    assert normal_cdf(single).dtype == np.float32
    assert abs(normal_cdf(single) - expected).max() < 1e-7


def test_normal_cdf_far_out_and_at_odd_values():
    with np.errstate(all="raise", under="ignore"):
        y = normal_cdf(np.array([-np.inf, -1e300, -38.0, -0.0, 0.0, 38.0, 1e300, np.inf]))
    expected = [0, 0, 0.5 * math.erfc(38 / math.sqrt(2)), 0.5, 0.5, 1, 1, 1]
    np.testing.assert_allclose(y, expected, rtol=1e-7, atol=0)
    assert np.isnan(normal_cdf(np.array([np.nan, 1.0]))).tolist() == [True, False]
    assert normal_cdf(np.float16([1.0])).dtype == np.float16


def test_bp39_gelu_tanh_or_erf():
    """Two functions go by the name of GELU, and each needs its own backward."""
    x = np.array([1.0, -2.6989])
    by_hand = np.array([both_variants(value) for value in x]).T
    np.testing.assert_allclose(by_hand[:, 0], [0.8413447, 0.8411920], rtol=0, atol=5e-8)  # the published values
    for approximate, expected in zip(("none", "tanh"), by_hand, strict=True):
        np.testing.assert_allclose(GELU(approximate).forward(x), expected, rtol=1e-14)
    grid = np.linspace(-6, 6, 120_001)
    gap = abs(GELU().forward(grid) - GELU("tanh").forward(grid))
    assert abs(gap.max() - 4.732e-4) < 1e-7
    assert abs(abs(grid[gap.argmax()]) - 2.699) < 1e-3

    # The wrong variant's backward is off by 1e-4 only, which PyTorch's default tolerance would let pass. Ours is not.
    x, dy = np.random.default_rng(0).standard_normal((2, 200))
    slopes = {}
    for approximate in ("none", "tanh"):
        layer = GELU(approximate)
        layer.forward(x)
        slopes[approximate] = layer.backward(np.ones_like(dy))
    gap = abs(slopes["none"] - slopes["tanh"]).max()
    assert 1e-5 < gap < 2e-3
    for i, approximate in enumerate(("none", "tanh")):
        numeric = [(both_variants(v + 1e-5)[i] - both_variants(v - 1e-5)[i]) / 2e-5 for v in x]
        np.testing.assert_allclose(slopes[approximate], numeric, rtol=0, atol=1e-9)


def test_gelu_refuses_another_variant():
    with pytest.raises(ValueError, match="approximate must be one of 'none', 'tanh', got 'erf'"):
        GELU("erf")


@pytest.mark.parametrize("name", LAYERS)
def test_against_torch(name):
    torch = pytest.importorskip("torch")
    theirs = {
        "GELU": torch.nn.GELU(),
        "GELU, tanh": torch.nn.GELU(approximate="tanh"),
        "SiLU": torch.nn.SiLU(),
        "Sigmoid": torch.nn.Sigmoid(),
        "Tanh": torch.nn.Tanh(),
    }[name]
    rng = np.random.default_rng(1)
    x, dy = 4 * rng.standard_normal((3, 40, 50)), rng.standard_normal((3, 40, 50))
    layer = LAYERS[name]()
    y = layer.forward(x)
    dx = layer.backward(dy)
    tx = torch.tensor(x, requires_grad=True)
    ty = theirs(tx)
    ty.backward(torch.tensor(dy))
    np.testing.assert_allclose(y, ty.detach().numpy(), rtol=0, atol=2e-15)
    np.testing.assert_allclose(dx, tx.grad.numpy(), rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", [*LAYERS, "ReLU"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_types_shapes_and_inputs_are_kept(name, dtype):
    layer = {**LAYERS, "ReLU": ReLU}[name]()
    for shape in ((), (1,), (2, 3), (3, 1, 9000)):  # the last is more than one block of GELU's
        x = np.random.default_rng(2).standard_normal(shape).astype(dtype)
        dy = np.ones(shape, dtype)
        x_before = x.copy()
        y = layer.forward(x)
        dx = layer.backward(dy)
        assert y.dtype == dx.dtype == dtype
        assert y.shape == dx.shape == shape
        np.testing.assert_array_equal(x, x_before)
        np.testing.assert_array_equal(dy, 1)
        with pytest.raises(RuntimeError, match="call forward first"):
            layer.backward(dy)


@pytest.mark.parametrize("name", LAYERS)
def test_far_out_nothing_overflows(name):
    layer = LAYERS[name]()
    for dtype, big in (("float16", 6e4), ("float32", 1e30), ("float64", 1e300)):
        x = np.array([-big, big], dtype)
        y = layer.forward(x)
        dx = layer.backward(np.ones_like(x))
        bounded = name in ("Sigmoid", "Tanh")
        np.testing.assert_allclose(y, [-1.0 if name == "Tanh" else 0, 1 if bounded else x[1]], rtol=1e-6)
        np.testing.assert_allclose(dx, [0, 0 if bounded else 1], atol=1e-6)
