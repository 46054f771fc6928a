"""Attention beyond the paper: shared heads of keys and values, rotary positions, other head widths, bias, PyTorch."""

import math

import numpy as np
import pytest
from finite_differences import assert_gradients, randomise

from transformer_np.layers import MultiHeadAttention, RotaryPositions, ScaledDotProductAttention
from transformer_np.masks import look_ahead_mask, padding_mask, sliding_window_mask
from transformer_np.module import Module

B, H, G, K, S, T, D = 3, 4, 2, 6, 5, 7, 8  # G heads of keys and values; K is not D / H
FLOAT64 = {"dtype": "float64"}


def attention(rng, *arguments, **options):
    """A MultiHeadAttention with every parameter random."""
    return randomise(MultiHeadAttention(D, *arguments, seed=rng, **options, **FLOAT64), rng)


def on(device, layer, inputs):
    """The layer and its inputs on NumPy or CuPy."""
    if device == "numpy":
        return layer, inputs
    import cupy

    return layer.to(device), tuple(a if a is None else cupy.asarray(a) for a in inputs)


class BiasBeforeMask(Module):
    """An attention whose inputs with a gradient come first: query, key, value, bias; then mask and positions."""

    def __init__(self, layer):
        super().__init__(**FLOAT64)
        self.layer = layer

    def forward(self, query, key, value, bias, mask, positions):
        return self.layer.forward(query, key, value, mask, bias, positions)

    def backward(self, dy):
        return self.layer.backward(dy)


GRADIENT_CASES = {
    "one head of keys and values": lambda rng: (attention(rng, H, 1, bias=False), "cross", None, None),
    "scale, bias of full size": lambda rng: (
        attention(rng, H, scale=0.7, dropout=0.2),
        *("cross", rng.standard_normal((B, H, T, S)), None),
    ),
    "grouped, bias over the batch": lambda rng: (
        attention(rng, H, G, dropout=0.2),
        *("cross", rng.standard_normal((1, H, T, S)), None),
    ),
    "bias over heads and queries": lambda rng: (attention(rng, H), "cross", rng.standard_normal((B, 1, 1, S)), None),
    "rotary, wide heads": lambda rng: (attention(rng, H, d_head=K, rotary="interleaved"), "self", None, None),
    "rotary, grouped, positions": lambda rng: (
        attention(rng, H, G, rotary="halves", bias=False),
        *("self", None, rng.integers(0, 20, (B, T))),
    ),
}


@pytest.mark.parametrize("case", GRADIENT_CASES)
def test_gradients(case, device):
    rng = np.random.default_rng(9)
    layer, kind, bias, positions = GRADIENT_CASES[case](rng)
    layer.replay_dropout(True)
    length = S if kind == "cross" else T
    mask = rng.random((B, H, T, length)) < 0.7
    mask[1, 2, 3] = False  # a query that may look nowhere
    shapes = ((B, T, D), (B, length, D), (B, length, D))
    inputs = (*(rng.standard_normal(shape) for shape in shapes), bias, mask, positions)
    layer, inputs = on(device, layer, inputs)
    # Without rotary positions a key's bias adds the same number to all scores of a query, which the softmax ignores.
    assert_gradients(BiasBeforeMask(layer), inputs, zero=("w_k.bias",) if kind == "cross" else ())


def test_bias_alone_by_hand():
    """q = 0, so the scores are the bias: the weights are its softmax."""
    layer = ScaledDotProductAttention()
    q, k, v = np.zeros((1, 1, 1, 2)), np.ones((1, 1, 3, 2)), np.eye(3)[None, None]
    bias = np.log([[[[1.0, 2.0, 5.0]]]])
    np.testing.assert_allclose(layer.forward(q, k, v, None, bias)[0, 0, 0], [0.125, 0.25, 0.625], rtol=1e-15)
    *_, dbias = layer.backward(np.array([[[[1.0, 0.0, 0.0]]]]))
    np.testing.assert_allclose(dbias[0, 0, 0], [0.125 * 0.875, -0.125 * 0.25, -0.125 * 0.625], rtol=1e-14)
    layer.forward(q, k, v)
    assert len(layer.backward(np.zeros((1, 1, 1, 3)))) == 3  # without a bias there is no gradient of one


def test_grouped_heads_are_whole_heads_with_the_same_projection():
    """Copy each group's matrices to the heads that it serves: an ordinary attention with equal outputs, whose gradients
    of the copies add up to those of the group."""
    rng = np.random.default_rng(1)
    grouped = attention(rng, H, G)
    plain = MultiHeadAttention(D, H, **FLOAT64)
    k = D // H
    for name, p in plain.named_parameters():
        ours = dict(grouped.named_parameters())[name].data
        if name.startswith(("w_k", "w_v")):
            ours = ours.reshape(-1, G, k).repeat(H // G, axis=1).reshape(p.shape)
        p.data[...] = ours
    inputs = [rng.standard_normal(shape) for shape in ((B, T, D), (B, S, D), (B, S, D))]
    dy = rng.standard_normal((B, T, D))
    np.testing.assert_allclose(grouped.forward(*inputs), plain.forward(*inputs), rtol=0, atol=1e-13)
    np.testing.assert_allclose(grouped.weights, plain.weights, rtol=0, atol=1e-13)
    for ours, theirs in zip(grouped.backward(dy), plain.backward(dy), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-13)
    for name, p in plain.named_parameters():
        expected = p.grad
        ours = dict(grouped.named_parameters())[name].grad
        if name.startswith(("w_k", "w_v")):
            expected = expected.reshape(-1, G, H // G, k).sum(2).reshape(ours.shape)
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-12)


def test_grouped_attention_against_torch():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal(shape) for shape in ((B, H, T, K), (B, G, T, K), (B, G, T, K)))
    dy = rng.standard_normal((B, H, T, K))
    tensors = [torch.tensor(a, requires_grad=True) for a in (q, k, v)]
    y = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=True, enable_gqa=True)
    y.backward(torch.tensor(dy))

    layer = MultiHeadAttention(H * K, H, G, bias=False, **FLOAT64)
    for linear in (layer.w_q, layer.w_k, layer.w_v, layer.w_o):
        linear.weight.data[...] = np.eye(*linear.weight.shape)
    layer.w_k.d_in = layer.w_v.d_in = layer.d_key = layer.d_value = G * K  # identities, so heads go in as they are
    layer.w_k.weight.data = layer.w_v.weight.data = np.eye(G * K)

    def merged(a):
        return a.swapaxes(1, 2).reshape(B, T, -1)

    ours = layer.forward(merged(q), merged(k), merged(v), look_ahead_mask(T))
    np.testing.assert_allclose(ours, merged(y.detach().numpy()), rtol=0, atol=1e-13)
    for gradient, tensor in zip(layer.backward(merged(dy)), tensors, strict=True):
        np.testing.assert_allclose(gradient, merged(tensor.grad.numpy()), rtol=0, atol=1e-13)


@pytest.mark.parametrize("widths", [(D, D), (9, 10)])
def test_multi_head_attention_against_torch(widths):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    d_key, d_value = widths
    layer = attention(rng, H, d_key=d_key, d_value=d_value)
    theirs = torch.nn.MultiheadAttention(D, H, kdim=d_key, vdim=d_value, batch_first=True).double()
    linears = (layer.w_q, layer.w_k, layer.w_v)
    matrices = [torch.tensor(linear.weight.data.T.copy()) for linear in linears]
    if widths == (D, D):
        theirs.in_proj_weight.data = torch.cat(matrices)
    else:
        theirs.q_proj_weight.data, theirs.k_proj_weight.data, theirs.v_proj_weight.data = matrices
    theirs.in_proj_bias.data = torch.cat([torch.tensor(linear.bias.data) for linear in linears])
    theirs.out_proj.weight.data = torch.tensor(layer.w_o.weight.data.T.copy())
    theirs.out_proj.bias.data = torch.tensor(layer.w_o.bias.data)

    ids = np.arange(1, S + 1) * (np.arange(S) < np.array([5, 3, 1])[:, None])  # 0 is padding
    inputs = [rng.standard_normal(shape) for shape in ((B, T, D), (B, S, d_key), (B, S, d_value))]
    bias = rng.standard_normal((B, H, T, S))
    dy = rng.standard_normal((B, T, D))
    tensors = [torch.tensor(a, requires_grad=True) for a in (*inputs, bias)]
    added = tensors[3].masked_fill(torch.tensor(ids == 0)[:, None, None], -math.inf)
    ty, tweights = theirs(*tensors[:3], attn_mask=added.reshape(B * H, T, S), average_attn_weights=False)
    ty.backward(torch.tensor(dy))

    y = layer.forward(*inputs, padding_mask(ids), bias)
    np.testing.assert_allclose(y, ty.detach().numpy(), rtol=0, atol=1e-13)
    np.testing.assert_allclose(layer.weights, tweights.detach().numpy(), rtol=0, atol=1e-13)
    for ours, tensor in zip(layer.backward(dy), tensors, strict=True):
        np.testing.assert_allclose(ours, tensor.grad.numpy(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(layer.w_o.weight.grad, theirs.out_proj.weight.grad.numpy().T, rtol=0, atol=1e-12)
    dbiases = np.concatenate([linear.bias.grad for linear in linears])
    np.testing.assert_allclose(dbiases, theirs.in_proj_bias.grad.numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_rotary_attention_is_attention_of_turned_queries_and_keys(layout):
    rng = np.random.default_rng(4)
    layer = attention(rng, H, G, d_head=K, rotary=layout, rotary_base=100.0)
    x = rng.standard_normal((B, T, D))
    y = layer.forward(x, x, x)

    def heads(linear, n):
        return linear(x).reshape(B, T, n, K).swapaxes(1, 2)

    turn = RotaryPositions(K, layout, base=100.0)
    q, k, v = turn(heads(layer.w_q, H)), turn(heads(layer.w_k, G)), heads(layer.w_v, G)
    k, v = (np.stack([a[:, h // (H // G)] for h in range(H)], 1) for a in (k, v))
    mixed = ScaledDotProductAttention()(q, k, v).swapaxes(1, 2).reshape(B, T, H * K)
    np.testing.assert_allclose(y, layer.w_o(mixed), rtol=0, atol=1e-13)
    # Shifting all positions changes nothing; leaving gaps does.
    np.testing.assert_allclose(layer.forward(x, x, x, positions=np.arange(T) + 50), y, rtol=0, atol=1e-11)
    assert abs(layer.forward(x, x, x, positions=np.arange(T) * 2) - y).max() > 1e-3


def test_sliding_window_by_hand():
    assert sliding_window_mask(4, 2).astype(int).tolist() == [
        [[[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]]
    ]
    assert sliding_window_mask(4, 2, causal=False).astype(int).tolist() == [
        [[[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]]
    ]
    assert sliding_window_mask(3, 1)[0, 0].tolist() == np.eye(3, dtype=bool).tolist()
    np.testing.assert_array_equal(sliding_window_mask(5, 5), look_ahead_mask(5))
    assert sliding_window_mask(5, 5, causal=False).all()
    with pytest.raises(ValueError, match="window must be at least 1"):
        sliding_window_mask(5, 0)


def test_what_lies_behind_the_window_has_no_say():
    rng = np.random.default_rng(5)
    layer = attention(rng, H, G, rotary="halves")
    x = rng.standard_normal((B, T, D))
    mask = sliding_window_mask(T, 3)
    y = layer.forward(x, x, x, mask)
    x[:, :2] = 100
    changed = abs(layer.forward(x, x, x, mask) - y).max((0, 2)) > 1e-12
    assert changed.tolist() == [True] * 4 + [False] * 3


def test_bad_arguments_are_named_and_nothing_runs():
    layer = MultiHeadAttention(D, H, G, rotary="halves", **FLOAT64)
    x = np.zeros((B, T, D))
    y = layer.forward(x, x, x)
    cases = [
        (lambda: MultiHeadAttention(D, H, 3), "n_heads 4 must be a multiple of n_kv_heads 3"),
        (lambda: MultiHeadAttention(D, 3), "d_model 8 must be a multiple of n_heads 3"),
        (lambda: MultiHeadAttention(D, H, d_head=0), "d_head must be an integer of at least 1"),
        (lambda: MultiHeadAttention(D, D, rotary="halves"), "d_k must be even"),
        (lambda: MultiHeadAttention(D, H, rotary="spiral"), "layout must be one of"),
        (lambda: layer.forward(x, x, x, bias=np.zeros((B, H, T, S))), r"bias must have 4 axes and broadcast"),
        (lambda: layer.forward(x, x, x, bias=np.zeros((T, T))), r"bias must have 4 axes and broadcast"),
        (lambda: layer.forward(x, x, x, bias=np.zeros((1, 1, T, T), "float32")), "bias is float32 but"),
        (lambda: layer.forward(x, x, x, positions=np.arange(S)), "positions must broadcast"),
        (lambda: layer.forward(x, x[:, :S], x[:, :S], positions=np.arange(T)), "positions must broadcast"),
        (
            lambda: MultiHeadAttention(D, H, **FLOAT64).forward(x, x, x, positions=np.arange(T)),
            "made without rotary=",
        ),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="scale must be a number"):
        MultiHeadAttention(D, H, scale="1")
    assert len(layer.backward(y)) == 3  # the forward before all those is still there
