"""Convolution over positions: finite differences, PyTorch, causality, padding and masks."""

import numpy as np
import pytest
from finite_differences import assert_gradients, randomise

from transformer_np.layers import Conv1D

B, D_IN, D_OUT, T = 2, 3, 4, 6
FLOAT64 = {"dtype": "float64"}
SETTINGS = [  # kernel size, dilation; the last reaches far past both ends of the sequence
    (1, 1),
    (2, 1),
    (3, 1),
    (3, 2),
    (4, 1),
    (5, 3),
]


def build(rng, kernel_size, padding, dilation=1, **options):
    """A layer with random parameters, and an input."""
    layer = Conv1D(D_IN, D_OUT, kernel_size, padding, dilation=dilation, seed=rng, **options, **FLOAT64)
    return randomise(layer, rng), rng.standard_normal((B, T, D_IN))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("padding", ["causal", "same"])
@pytest.mark.parametrize(("kernel_size", "dilation"), SETTINGS)
def test_gradients(kernel_size, dilation, padding, masked, device):
    layer, x = build(np.random.default_rng(0), kernel_size, padding, dilation, bias=kernel_size != 2)
    mask = np.arange(T) < np.array([6, 4])[:, None] if masked else None
    if device != "numpy":
        import cupy

        layer, x = layer.to(device), cupy.asarray(x)
        mask = None if mask is None else cupy.asarray(mask)
    assert_gradients(layer, (x, mask))


@pytest.mark.parametrize("padding", ["causal", "same"])
@pytest.mark.parametrize(("kernel_size", "dilation"), SETTINGS)
def test_against_torch(kernel_size, dilation, padding):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    layer, x = build(rng, kernel_size, padding, dilation)
    # torch.nn.Conv1d has features before positions; its padding="same" warns where it has to copy, so we pad ourselves.
    theirs = torch.nn.Conv1d(D_IN, D_OUT, kernel_size, dilation=dilation).double()
    theirs.weight.data = torch.tensor(layer.weight.data.transpose(2, 1, 0).copy())
    theirs.bias.data = torch.tensor(layer.bias.data)
    total = (kernel_size - 1) * dilation
    left = total if padding == "causal" else total // 2
    dy = rng.standard_normal((B, T, D_OUT))
    tx = torch.tensor(x, requires_grad=True)
    ty = theirs(torch.nn.functional.pad(tx.transpose(1, 2), (left, total - left))).transpose(1, 2)
    ty.backward(torch.tensor(dy))
    if padding == "same" and total % 2 == 0:
        theirs.padding, padded = "same", ty.detach().numpy().swapaxes(1, 2)
        np.testing.assert_allclose(theirs(tx.transpose(1, 2)).detach().numpy(), padded, rtol=0, atol=1e-13)
    np.testing.assert_allclose(layer.forward(x), ty.detach().numpy(), rtol=0, atol=1e-13)
    np.testing.assert_allclose(layer.backward(dy), tx.grad.numpy(), rtol=0, atol=1e-13)
    np.testing.assert_allclose(layer.weight.grad, theirs.weight.grad.numpy().transpose(2, 1, 0), rtol=0, atol=1e-12)
    np.testing.assert_allclose(layer.bias.grad, theirs.bias.grad.numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("padding", "expected"), [("causal", [1, 12, 123, 234]), ("same", [12, 123, 234, 340])])
def test_by_hand(padding, expected):
    """Kernel (100, 10, 1) over 1, 2, 3, 4."""
    layer = Conv1D(1, 1, 3, padding, **FLOAT64)
    layer.weight.data[:, 0, 0] = 100, 10, 1
    assert layer.forward(np.array([[[1.0], [2], [3], [4]]]))[0, :, 0].tolist() == expected


@pytest.mark.parametrize(("kernel_size", "dilation"), SETTINGS)
def test_which_outputs_an_input_reaches(kernel_size, dilation):
    for padding in ("causal", "same"):
        layer, x = build(np.random.default_rng(2), kernel_size, padding, dilation)
        y = layer.forward(x)
        x[:, 3] += 1
        reached = np.flatnonzero(abs(layer.forward(x) - y).max((0, 2)) > 1e-12)
        first = 3 if padding == "causal" else 3 - ((kernel_size - 1) * dilation - (kernel_size - 1) * dilation // 2)
        expected = first + dilation * np.arange(kernel_size)
        assert reached.tolist() == [t for t in expected if 0 <= t < T]


def test_masked_positions_count_as_zeros():
    layer, x = build(np.random.default_rng(3), 3, "same")
    mask = np.arange(T) < np.array([6, 4])[:, None]
    y = layer.forward(x, mask)
    dx = layer.backward(np.ones_like(y))
    assert not dx[1, 4:].any()
    np.testing.assert_allclose(y[1, :4], layer.forward(x[1:, :4])[0], rtol=0, atol=1e-14)
    x[1, 4:] = np.inf  # even then: a mask selects, it does not multiply
    np.testing.assert_array_equal(layer.forward(x, mask), y)


def test_contract():
    layer, x = build(np.random.default_rng(4), 1, "causal")
    before = x.copy()
    y = layer.forward(x)
    dy = np.ones_like(y)
    dx = layer.backward(dy)
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(dy, 1)
    assert not np.may_share_memory(dx, dy)
    with pytest.raises(RuntimeError, match="call forward first"):
        layer.backward(dy)
    single = Conv1D(D_IN, D_OUT, 3)
    y = single.forward(x.astype("float32"))
    assert y.dtype == single.backward(y).dtype == np.float32


def test_bad_arguments_are_named():
    layer, x = build(np.random.default_rng(5), 3, "causal")
    cases = [
        (lambda: Conv1D(D_IN, D_OUT, 0), "kernel_size must be an integer of at least 1"),
        (lambda: Conv1D(D_IN, D_OUT, 3, dilation=0), "dilation must be an integer of at least 1"),
        (lambda: Conv1D(D_IN, D_OUT, 3, "valid"), "padding must be one of 'causal', 'same'"),
        (lambda: layer.forward(x[..., :2]), r"x must have shape \(any, any, 3\)"),
        (lambda: layer.forward(x, np.ones((T, B), bool)), r"mask must be boolean of shape \(2, 6\)"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
