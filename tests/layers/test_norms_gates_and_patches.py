"""RMSNorm, gated feed-forward, patch embedding and pooler: finite differences, and PyTorch or formulas beside them."""

import numpy as np
import pytest
from finite_differences import assert_gradients, away_from_kinks, randomise

from transformer_np.layers import FeedForward, GatedFeedForward, LayerNorm, PatchEmbedding, Pooler, RMSNorm
from transformer_np.layers.feed_forward import ACTIVATIONS

B, T, D, F, C, P = 2, 5, 6, 7, 3, 4
FLOAT64 = {"dtype": "float64"}


def with_x(layer, *shape):
    """A build function for `away_from_kinks`: the layer made from the random numbers it gives, and one input."""
    return lambda rng: (layer(rng), (rng.standard_normal(shape),))


CASES = {
    "RMSNorm": with_x(lambda rng: RMSNorm(D, **FLOAT64), B, T, D),
    "RMSNorm, large eps": with_x(lambda rng: RMSNorm(D, 0.7, **FLOAT64), B, T, D),
    "RMSNorm, one row": with_x(lambda rng: RMSNorm(D, **FLOAT64), D),
    "Pooler": with_x(lambda rng: Pooler(D, seed=rng, **FLOAT64), B, T, D),
    "PatchEmbedding": with_x(lambda rng: PatchEmbedding(P, C, D, seed=rng, **FLOAT64), B, C, 2 * P, P),
    "PatchEmbedding, no bias": with_x(lambda rng: PatchEmbedding(P, C, D, bias=False, seed=rng, **FLOAT64), 1, C, P, P),
}
for kind in ACTIVATIONS:
    CASES[f"FeedForward, {kind}"] = with_x(
        lambda rng, kind=kind: FeedForward(D, F, kind, dropout=0.2, seed=rng, **FLOAT64), B, T, D
    )
    CASES[f"GatedFeedForward, {kind}"] = with_x(
        lambda rng, kind=kind: GatedFeedForward(D, F, kind, dropout=0.2, bias=kind == "gelu", seed=rng, **FLOAT64),
        *(B, T, D),
    )


@pytest.mark.parametrize("case", CASES)
def test_gradients(case, device):
    layer, inputs = away_from_kinks(CASES[case], device)
    assert_gradients(layer, inputs)


def torch_gradients(torch, module, x, dy):
    """Output and input gradient of a torch module, in float64; its parameters get their gradients too."""
    x = torch.tensor(x, requires_grad=True)
    y = module(x)
    y.backward(torch.tensor(dy))
    return y.detach().numpy(), x.grad.numpy()


@pytest.mark.parametrize("eps", [1e-6, 0.3])
def test_rms_norm_against_torch(eps):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    layer = randomise(RMSNorm(D, eps, **FLOAT64), rng)
    theirs = torch.nn.RMSNorm(D, eps).double()
    theirs.weight.data = torch.tensor(layer.gamma.data)
    x, dy = rng.standard_normal((2, B, T, D))
    y, dx = torch_gradients(torch, theirs, x, dy)
    np.testing.assert_allclose(layer.forward(x), y, rtol=0, atol=1e-14)
    np.testing.assert_allclose(layer.backward(dy), dx, rtol=0, atol=1e-13)
    np.testing.assert_allclose(layer.gamma.grad, theirs.weight.grad.numpy(), rtol=0, atol=1e-13)


def test_rms_norm_is_layer_norm_of_rows_without_mean():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((B, T, D))
    x -= x.mean(-1, keepdims=True)
    np.testing.assert_allclose(
        RMSNorm(D, 1e-5, **FLOAT64).forward(x), LayerNorm(D, 1e-5, **FLOAT64).forward(x), rtol=0, atol=1e-14
    )


def test_rms_norm_of_a_row_of_zeros_is_zero():
    layer = RMSNorm(D)
    x = np.zeros((1, D), "float32")
    assert not layer.forward(x).any()
    dx = layer.backward(np.ones_like(x))
    np.testing.assert_allclose(dx, 1e3, rtol=1e-6)  # dy / sqrt(eps): large, and finite


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_gated_feed_forward_is_shazeers_formula(kind):
    """(act(x W) * x V) W_2, section 2 of Shazeer 2020, with PyTorch's activations and autograd."""
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    act = {
        "relu": functional.relu,
        "gelu": functional.gelu,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "silu": functional.silu,
        "sigmoid": torch.sigmoid,
    }[kind]
    rng = np.random.default_rng(2)
    layer = GatedFeedForward(D, F, kind, seed=rng, **FLOAT64)
    x, dy = rng.standard_normal((2, B, T, D))
    w, v, w2 = (torch.tensor(p.data, requires_grad=True) for p in layer.parameters())
    y, dx = torch_gradients(torch, lambda x: (act(x @ w) * (x @ v)) @ w2, x, dy)
    np.testing.assert_allclose(layer.forward(x), y, rtol=0, atol=1e-13)
    np.testing.assert_allclose(layer.backward(dy), dx, rtol=0, atol=1e-13)
    for p, theirs in zip(layer.parameters(), (w, v, w2), strict=True):
        np.testing.assert_allclose(p.grad, theirs.grad.numpy(), rtol=0, atol=1e-13)


def test_patch_embedding_is_a_convolution_with_kernel_and_stride_of_a_patch():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    layer = randomise(PatchEmbedding(P, C, D, seed=rng, **FLOAT64), rng)
    theirs = torch.nn.Conv2d(C, D, P, stride=P).double()
    theirs.weight.data = torch.tensor(layer.projection.weight.data.T.reshape(D, C, P, P).copy())
    theirs.bias.data = torch.tensor(layer.projection.bias.data)
    x = rng.standard_normal((B, C, 2 * P, 3 * P))
    dy = rng.standard_normal((B, 6, D))
    y, dx = torch_gradients(torch, lambda x: theirs(x).flatten(2).transpose(1, 2), x, dy)
    np.testing.assert_allclose(layer.forward(x), y, rtol=0, atol=1e-13)
    np.testing.assert_allclose(layer.backward(dy), dx, rtol=0, atol=1e-13)
    dw = theirs.weight.grad.numpy().reshape(D, -1).T
    np.testing.assert_allclose(layer.projection.weight.grad, dw, rtol=0, atol=1e-13)


def test_patches_come_row_by_row():
    layer = PatchEmbedding(2, 1, 4, bias=False, **FLOAT64)
    layer.projection.weight.data[...] = np.eye(4)
    image = np.arange(24.0).reshape(1, 1, 4, 6)
    y = layer.forward(image)[0]
    assert y[1].tolist() == [2, 3, 8, 9]  # the second patch of the first row
    assert y[3].tolist() == [12, 13, 18, 19]  # the first of the second row
    np.testing.assert_array_equal(layer.backward(y[None]), image)


def test_pooler_looks_at_the_first_position_only():
    rng = np.random.default_rng(4)
    layer = Pooler(D, seed=rng, **FLOAT64)
    x = rng.standard_normal((B, T, D))
    y = layer.forward(x)
    np.testing.assert_allclose(y, np.tanh(x[:, 0] @ layer.linear.weight.data), rtol=0, atol=1e-15)
    dx = layer.backward(y)
    assert dx.shape == x.shape
    assert dx[:, 0].all()
    assert not dx[:, 1:].any()


def test_bad_arguments_are_named():
    image = np.zeros((1, 3, 8, 9), "float32")
    cases = [
        (lambda: RMSNorm(D, 0.0), "RMSNorm: eps must be positive, got 0.0"),
        (lambda: RMSNorm(D).forward(np.zeros((2, F), "float32")), "RMSNorm: x must have last axis 6"),
        (lambda: GatedFeedForward(D, F, "swish"), "GatedFeedForward: activation must be one of .* got 'swish'"),
        (lambda: PatchEmbedding(4, 3, D).forward(image), "patches of 4 by 4 do not tile an image of 8 by 9"),
        (lambda: PatchEmbedding(4, 1, D).forward(image), r"PatchEmbedding: x must have shape \(any, 1, any, any\)"),
        (lambda: Pooler(D).forward(np.zeros((2, D), "float32")), r"Pooler: x must have shape \(any, any, 6\)"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()


def test_numpy_scalars_as_sizes_do_not_promote():
    """NumPy 2 lets np.float64 and np.int64 scalars turn float32 arrays into float64 ones."""
    layer = RMSNorm(np.int64(D), np.float64(1e-6))
    x = np.ones((2, D), "float32")
    assert layer.forward(x).dtype == layer.backward(x).dtype == layer.gamma.grad.dtype == np.float32
    layer = PatchEmbedding(np.int64(2), np.int64(1), np.int64(D))
    image = np.ones((1, 1, 2, 2), "float32")
    assert layer.backward(layer.forward(image)).dtype == np.float32
