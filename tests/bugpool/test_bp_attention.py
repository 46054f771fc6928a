"""The bug pool's mistakes with attention and the layer contract: each is impossible here."""

import math

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.layers import EncoderLayer, Linear, MultiHeadAttention, ScaledDotProductAttention, Softmax
from transformer_np.layers.multi_head_attention import merge_heads, split_heads
from transformer_np.masks import look_ahead_mask


def test_bp41_merging_heads_without_transpose():
    np.testing.assert_array_equal(merge_heads(np.arange(8).reshape(1, 2, 2, 2)), [[[0, 1, 4, 5], [2, 3, 6, 7]]])
    heads = np.arange(2 * 2 * 3 * 2).reshape(2, 2, 3, 2)  # H = 2, T = 3
    merged = merge_heads(heads)
    for b, h, t, k in np.ndindex(2, 2, 3, 2):
        assert merged[b, t, 2 * h + k] == heads[b, h, t, k]


def test_bp42_splitting_heads_without_transpose():
    np.testing.assert_array_equal(split_heads(np.arange(8).reshape(1, 2, 4), 2), [[[[0, 1], [4, 5]], [[2, 3], [6, 7]]]])
    x = np.arange(2 * 3 * 8).reshape(2, 3, 8)
    np.testing.assert_array_equal(merge_heads(split_heads(x, 4)), x)


def test_bp43_scale_by_the_wrong_dimension():
    # d_model 8 and 2 heads: d_k is 4, so the scores are divided by 2. Key 0 scores 4/2 = 2 and key 1 scores 0.
    attention = MultiHeadAttention(8, 2, bias=False, seed=0, dtype="float64")
    for linear in (attention.w_q, attention.w_k, attention.w_v, attention.w_o):
        linear.weight.data[...] = np.eye(8)
    key = np.stack([np.ones(8), np.zeros(8)])[None]
    attention(np.ones((1, 1, 8)), key, key)
    expected = math.exp(2) / (math.exp(2) + 1)
    np.testing.assert_allclose(attention.weights[0, :, 0, 0], expected, rtol=1e-14)


def test_bp44_softmax_axis():
    rng = np.random.default_rng(0)
    weights = Softmax()(rng.standard_normal((3, 3)))
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-15)
    assert not np.allclose(weights.sum(0), 1, atol=0.01)
    attention = ScaledDotProductAttention()
    attention(*rng.standard_normal((3, 3, 3)), look_ahead_mask(3)[0, 0])
    np.testing.assert_array_equal(attention.weights[0], [1, 0, 0])


def test_bp49_two_forwards_and_backwards_add_up():
    layer = EncoderLayer(8, 2, 16, dropout=0.0, seed=0, dtype="float64")
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, 3, 8)), rng.standard_normal((2, 3, 8))
    layer(x)
    dx = layer.backward(dy)
    once = [p.grad.copy() for p in layer.parameters()]
    layer(x)
    np.testing.assert_array_equal(layer.backward(dy), dx)
    for p, g in zip(layer.parameters(), once, strict=True):
        np.testing.assert_array_equal(p.grad, 2 * g)  # neither 1x nor 3x


def test_bp49_backward_twice_is_refused():
    layer = Linear(2, 2, seed=0, dtype="float64")
    layer(np.ones((1, 2)))
    layer.backward(np.ones((1, 2)))
    gradient = layer.weight.grad.copy()
    with pytest.raises(RuntimeError, match=r"Linear.backward: call forward first. Each backward uses up one forward"):
        layer.backward(np.ones((1, 2)))
    np.testing.assert_array_equal(layer.weight.grad, gradient)


def test_bp49_a_value_used_three_times_gets_the_sum():
    # Self-attention with identity projections, one key: y = x, however q and k are, so only dv reaches x.
    attention = MultiHeadAttention(4, 2, bias=False, seed=0, dtype="float64")
    for linear in (attention.w_q, attention.w_k, attention.w_v, attention.w_o):
        linear.weight.data[...] = np.eye(4)
    x, dy = np.array([[[1.0, 2.0, 3.0, 4.0]]]), np.array([[[1.0, -1.0, 0.5, 2.0]]])
    np.testing.assert_array_equal(attention(x, x, x), x)
    dq, dk, dv = attention.backward(dy)
    np.testing.assert_array_equal(dq + dk + dv, dy)
    # The residual path is a second use: with W_2 = 0 the feed-forward adds nothing to dx, and the path alone gives dy.
    layer = EncoderLayer(4, 2, 8, dropout=0.0, norm="pre", seed=0, dtype="float64")
    layer.self_attention.w_o.weight.data[...] = 0
    layer.feed_forward.linear2.weight.data[...] = 0
    layer(x)
    np.testing.assert_array_equal(layer.backward(dy), dy)


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1)])
def test_bp58_squeeze_eats_the_batch(shape):
    # The last batch of an epoch may hold one sentence, of one token: it trains like any other.
    model = tnp.Transformer(6, 7, 8, 2, 1, 1, 16, dropout=0.1, seed=0)
    step = tnp.TrainStep(model, tnp.CrossEntropy(ignore_index=0), tnp.Adam(model.parameters()))
    ids = np.ones(shape, int)
    assert model.forward(ids, ids).shape == (*shape, 7)
    before = model.state_dict()
    assert math.isfinite(step(ids, ids, 2 * ids))
    assert not np.array_equal(before["output.weight"], model.output.weight.data)


def kept(module):
    return [name for name, part in module.named_modules() if part._saved is not None]


def test_bp69_caches_never_cleared():
    model = tnp.Transformer(6, 7, 8, 2, 1, 1, 16, dropout=0.1, seed=0)
    ids = np.ones((2, 3), int)
    with tnp.inference():
        for _ in range(20):
            model.forward(ids, ids)
            assert kept(model) == []
    assert model.encoder.layers[0].self_attention.weights is None
    for _ in range(3):
        logits = model.forward(ids, ids)
        assert kept(model)
        model.backward(np.ones_like(logits))
        assert kept(model) == []
    model.forward(ids, ids)
    model.forget()
    assert kept(model) == []


def test_bp69_of_two_forwards_the_last_counts():
    layer = Linear(2, 2, seed=0, dtype="float64")
    layer(np.array([[1.0, 2.0]]))
    layer(np.array([[3.0, 4.0]]))
    layer.backward(np.array([[1.0, 0.0]]))
    np.testing.assert_array_equal(layer.weight.grad, [[3, 0], [4, 0]])
    with pytest.raises(RuntimeError, match="call forward first"):
        layer.backward(np.array([[1.0, 0.0]]))
