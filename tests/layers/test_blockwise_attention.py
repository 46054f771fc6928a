"""Blockwise attention against differences, against the plain attention, and against what its memory may be."""

import copy
import tracemalloc

import numpy as np
import pytest
from finite_differences import assert_gradients, randomise

import transformer_np as tnp
from transformer_np.layers import BlockwiseAttention, EncoderLayer, MultiHeadAttention, ScaledDotProductAttention
from transformer_np.layers.blockwise_attention import blocks
from transformer_np.masks import look_ahead_mask
from transformer_np.module import Module

B, H, T, S, K, V = 2, 3, 7, 5, 4, 6  # with blocks of 3, neither T nor S comes out even
SMALL = 5, 4  # T and S for differences, again not multiples of 3
FLOAT64 = {"dtype": "float64"}
BLOCKS = [1, 3, 64]  # one entry a block, uneven blocks, everything in one block


def heads(rng, n_queries=T, n_keys=S, batch=B, width=K, dtype="float64"):
    """q, k, v and dy."""
    lengths = ((n_queries, width), (n_keys, width), (n_keys, V), (n_queries, V))
    return [rng.standard_normal((batch, H, *shape)).astype(dtype) for shape in lengths]


def holes(rng, n_queries=T, n_keys=S):
    """(B, H, T, S): another mask for each head; one query may look nowhere, one key is never looked at."""
    mask = rng.random((B, H, n_queries, n_keys)) < 0.6
    mask[1, 2, 3] = False
    mask[0, 1, :, 2] = False
    return mask


MASKS = {
    "none": lambda rng: None,
    "holes": holes,
    "padding": lambda rng: np.array([[1, 1, 1, 1, 0], [0, 0, 0, 1, 1]], bool)[:, None, None],
    "padding throughout": lambda rng: np.array([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0]], bool)[:, None, None],
    "queries only": lambda rng: (np.arange(T) != 2)[:, None] & np.ones((T, 1), bool),
    "two axes": lambda rng: rng.random((T, S)) < 0.7,
}


class BiasBeforeMask(Module):
    """An attention whose inputs with a gradient come first: q, k, v, bias; then the mask."""

    def __init__(self, layer):
        super().__init__(**FLOAT64)
        self.layer = layer

    def forward(self, q, k, v, bias, mask):
        return self.layer.forward(q, k, v, mask, bias)

    def backward(self, dy):
        return self.layer.backward(dy)


@pytest.mark.parametrize(("block", "masked", "dropout"), [(3, 0, 0.0), (3, 1, 0.4), (2, 1, 0.0), (9, 1, 0.4)])
def test_gradients(block, masked, dropout):
    rng = np.random.default_rng(block)
    layer = BlockwiseAttention(dropout, block=block, seed=1).replay_dropout(True)
    assert_gradients(layer, (*heads(rng, *SMALL)[:3], holes(rng, *SMALL) if masked else None))


@pytest.mark.parametrize("bias_shape", [(B, H, *SMALL), (1, H, *SMALL), (B, 1, 1, SMALL[1]), (1, 1, SMALL[0], 1)])
def test_gradients_with_a_bias(bias_shape):
    rng = np.random.default_rng(2)
    layer = BiasBeforeMask(BlockwiseAttention(0.3, block=3, scale=0.7, seed=1)).replay_dropout(True)
    # A bias that is the same for all keys of a query changes nothing: softmax takes no notice.
    zero = ("input 3",) if bias_shape[-1] == 1 else ()
    inputs = (*heads(rng, *SMALL)[:3], rng.standard_normal(bias_shape), holes(rng, *SMALL))
    assert_gradients(layer, inputs, zero=zero)


@pytest.mark.parametrize(("n_queries", "n_keys", "dropout"), [(5, 5, 0.4), (3, 5, 0.0), (5, 4, 0.4)])
def test_gradients_causal(n_queries, n_keys, dropout):
    rng = np.random.default_rng(3)
    layer = BlockwiseAttention(dropout, block=3, causal=True, seed=1).replay_dropout(True)
    mask = rng.random((1, 1, n_queries, n_keys)) < 0.8
    assert_gradients(layer, (*heads(rng, n_queries, n_keys, batch=1)[:3], mask))


def test_gradients_of_multi_head_attention():
    rng = np.random.default_rng(4)
    options = {"attention": "blockwise", "block": 3, "dropout": 0.2, "rotary": "halves", "causal": True}
    layer = randomise(MultiHeadAttention(8, 4, 2, seed=rng, **options, **FLOAT64), rng).replay_dropout(True)
    assert_gradients(layer, [rng.standard_normal((B, SMALL[0], 8)) for _ in range(3)])


def assert_twins(plain, blockwise, inputs, dy, plain_mask, mask, bias=None, atol=1e-13):
    y = plain.forward(*inputs, plain_mask, bias)
    np.testing.assert_allclose(blockwise.forward(*inputs, mask, bias), y, rtol=0, atol=atol)
    for ours, theirs in zip(blockwise.backward(dy), plain.backward(dy), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("block", BLOCKS)
def test_equal_to_the_plain_twin(block, mask):
    rng = np.random.default_rng(5)
    *inputs, dy = heads(rng)
    mask = MASKS[mask](rng)
    bias = rng.standard_normal((1, H, T, S))
    twins = ScaledDotProductAttention(scale=0.6), BlockwiseAttention(block=block, scale=0.6)
    assert_twins(*twins, inputs, dy, mask, mask, bias)


@pytest.mark.parametrize("n_queries", [1, 4, 7, 9])
@pytest.mark.parametrize("block", BLOCKS)
def test_causal_is_a_look_ahead_mask(block, n_queries):
    """The queries stand at the last positions; where there are more of them than keys, the first see nothing."""
    rng = np.random.default_rng(6)
    *inputs, dy = heads(rng, n_queries, 7)
    may_look = np.arange(7) <= np.arange(7 - n_queries, 7)[:, None]
    if n_queries == 7:
        np.testing.assert_array_equal(may_look, look_ahead_mask(7)[0, 0])
    padding = rng.random((B, 1, 1, 7)) < 0.8
    twins = ScaledDotProductAttention(), BlockwiseAttention(block=block, causal=True)
    assert_twins(*twins, inputs, dy, may_look[None, None], None)
    assert_twins(*twins, inputs, dy, padding & may_look, padding)


@pytest.mark.parametrize("causal", [False, True])
def test_equal_to_the_plain_twin_at_2048_tokens(causal):
    rng = np.random.default_rng(7)
    inputs = [rng.standard_normal((1, 2, 2048, 8)) for _ in range(4)]
    *inputs, dy = inputs
    mask = rng.random((1, 1, 1, 2048)) < 0.9
    plain_mask = mask & look_ahead_mask(2048) if causal else mask
    twins = ScaledDotProductAttention(), BlockwiseAttention(causal=causal)
    assert_twins(*twins, inputs, dy, plain_mask, mask, atol=1e-12)  # the largest gradients are near 1


def test_equal_to_the_plain_twin_in_float32_with_large_scores():
    """Scores up to a few hundred: exp overflows unless the running maximum is taken off each block."""
    rng = np.random.default_rng(8)
    *inputs, dy = heads(rng, dtype="float32")
    inputs[0] *= 200
    *exact, dy64 = (a.astype("float64") for a in (*inputs, dy))
    layer, plain = BlockwiseAttention(block=2), ScaledDotProductAttention()
    y, expected = layer.forward(*inputs), plain.forward(*exact)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-4)  # scores of 500 in steps of 3e-5
    for ours, theirs in zip(layer.backward(dy), plain.backward(dy64), strict=True):
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4 * abs(theirs).max())


def plain_dropout(mask):
    """A plain attention whose dropout has this mask."""
    layer = ScaledDotProductAttention(0.5)
    layer.dropout.scaled_mask = lambda like: mask
    return layer


def test_dropout_is_that_of_the_plain_twin():
    """Zero queries and identity values: the output shows weight times mask, entry by entry. With that mask the plain
    attention must give the same, backward too."""
    rng = np.random.default_rng(9)
    layer = BlockwiseAttention(0.5, block=3, seed=3).replay_dropout(True)
    identity = np.broadcast_to(np.eye(S), (B, H, S, S))
    shown = layer.forward(np.zeros((B, H, T, K)), np.zeros((B, H, S, K)), identity) * S
    assert set(np.unique(shown.round(12))) == {0.0, 2.0}
    q, k, v, _ = heads(rng)
    v, dy = rng.standard_normal((B, H, S, S)), rng.standard_normal((B, H, T, S))  # the same shapes, so the same draws
    assert_twins(plain_dropout(shown), layer, (q, k, v), dy, None, None)


def test_dropout_of_each_block_and_each_forward_is_its_own():
    layer = BlockwiseAttention(0.5, block=16, seed=3)
    inputs = np.zeros((1, 1, 64, 2)), np.zeros((1, 1, 64, 2)), np.eye(64)[None, None]
    first, second = (layer.forward(*inputs)[0, 0] > 0 for _ in range(2))
    assert 0.4 < first.mean() < 0.6
    tiles = [a[rows, columns] for a in (first, second) for rows in blocks(64, 16) for columns in blocks(64, 16)]
    for i, tile in enumerate(tiles):
        for other in tiles[:i]:
            assert 0.3 < (tile != other).mean() < 0.7  # independent masks differ in half of the 256 places


def test_backward_does_not_disturb_the_stream():
    """What a forward draws does not depend on whether a backward ran before it."""
    rng = np.random.default_rng(10)
    *inputs, dy = heads(rng)
    one, other = (BlockwiseAttention(0.5, block=3, seed=3) for _ in range(2))
    one.forward(*inputs)
    one.backward(dy)
    other.forward(*inputs)
    np.testing.assert_array_equal(one.forward(*inputs), other.forward(*inputs))
    dq = one.backward(dy)[0]
    copied = copy.deepcopy(other)
    for layer in (other, copied):
        np.testing.assert_array_equal(layer.backward(dy)[0], dq)


def test_a_query_that_may_look_nowhere():
    rng = np.random.default_rng(11)
    *inputs, dy = heads(rng)
    mask = holes(rng)
    layer = BlockwiseAttention(block=2)
    y = layer.forward(*inputs, mask)
    assert not y[1, 2, 3].any()
    dq, dk, dv = layer.backward(dy)
    assert not dq[1, 2, 3].any()
    assert not dk[0, 1, 2].any()
    assert not dv[0, 1, 2].any()
    assert all(np.isfinite(a).all() for a in (y, dq, dk, dv))


def test_contract():
    rng = np.random.default_rng(12)
    *inputs, dy = heads(rng)
    mask, bias = holes(rng), rng.standard_normal((1, H, T, S))
    before = copy.deepcopy((inputs, dy, mask, bias))
    layer = BlockwiseAttention(0.2, block=3, seed=0)
    for a in (*inputs, dy, mask, bias):
        a.flags.writeable = False
    y = layer.forward(*inputs, mask, bias)
    results = (y, *layer.backward(dy))
    for result in results:
        assert not any(np.shares_memory(result, a) for a in (*inputs, dy, bias))
    np.testing.assert_equal((inputs, dy, mask, bias), before)
    assert layer.weights is None
    with pytest.raises(RuntimeError, match="call forward first"):
        layer.backward(dy)
    with tnp.inference():
        layer.forward(*inputs)
    with pytest.raises(RuntimeError, match="call forward first"):
        layer.backward(dy)


def test_memory_grows_with_the_length_not_its_square():
    """Above the inputs there are y, three gradients and a few blocks. The weights alone would be 134 MB."""
    rng = np.random.default_rng(13)
    q, k, v, dy = (rng.standard_normal((1, 2, 4096, 4)).astype("float32") for _ in range(4))
    layer = BlockwiseAttention(0.1, block=128, causal=True, seed=0)
    tracemalloc.start()
    layer.forward(q, k, v)
    layer.backward(dy)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    one_block = 2 * 128 * 128 * 4  # bytes
    assert peak < 5 * q.nbytes + 10 * one_block


def test_an_encoder_layer_takes_it():
    rng = np.random.default_rng(14)
    layers = [
        EncoderLayer(8, 2, 16, attention=attention, seed=5, **FLOAT64).eval()
        for attention in (None, {"attention": "blockwise", "block": 2})
    ]
    x, dy = rng.standard_normal((2, B, T, 8))
    mask = np.array([[1] * 7, [1] * 4 + [0] * 3], bool)[:, None, None]
    np.testing.assert_allclose(layers[1].forward(x, mask), layers[0].forward(x, mask), rtol=0, atol=1e-13)
    np.testing.assert_allclose(layers[1].backward(dy), layers[0].backward(dy), rtol=0, atol=1e-12)
    for (name, p), (other_name, other) in zip(*(layer.named_parameters() for layer in layers), strict=True):
        assert name == other_name
        np.testing.assert_allclose(p.grad, other.grad, rtol=0, atol=1e-12)


def test_bad_arguments_are_named():
    *inputs, dy = heads(np.random.default_rng(15))
    layer = BlockwiseAttention()
    y = layer.forward(*inputs)
    cases = [
        (lambda: BlockwiseAttention(block=0), "BlockwiseAttention: block must be an integer of at least 1, got 0"),
        (lambda: BlockwiseAttention(1.0), "p must be at least 0 and less than 1"),
        (lambda: layer.forward(inputs[0], dy, inputs[2]), r"BlockwiseAttention: k must have shape \(2, 3, any, 4\)"),
        (lambda: layer.forward(*inputs[:2], dy), r"BlockwiseAttention: v must have shape \(2, 3, 5, any\)"),
        (lambda: layer.forward(*inputs, np.ones((T, S))), "BlockwiseAttention: mask must be boolean"),
        (lambda: layer.forward(*inputs, np.ones((S, T), bool)), "BlockwiseAttention: mask must broadcast"),
        (lambda: layer.forward(*inputs, bias=np.zeros((T, S))), "BlockwiseAttention: bias must have 4 axes"),
        (lambda: MultiHeadAttention(8, 2, attention="flash"), "attention must be one of 'plain', 'blockwise', got 'fl"),
        (lambda: MultiHeadAttention(8, 2, causal=True), 'causal=True needs attention="blockwise"'),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
    assert len(layer.backward(np.ones_like(y))) == 3  # the forward before all those is still there
