"""T5's relative position bias and ALiBi: their tables by hand, finite differences, and both inside attention."""

import numpy as np
import pytest
from finite_differences import assert_gradients

from transformer_np.layers import ALiBi, MultiHeadAttention, RelativePositionBias
from transformer_np.layers.alibi import alibi_slopes
from transformer_np.layers.relative_position_bias import relative_buckets
from transformer_np.module import Module

B, H, T, S, D = 2, 3, 5, 7, 6
FLOAT64 = {"dtype": "float64"}


class WithLengths(Module):
    """A bias layer with its integer arguments fixed, for the difference checker, whose inputs are arrays."""

    def __init__(self, layer, *lengths):
        super().__init__(**FLOAT64)
        self.layer, self.lengths = layer, lengths

    def forward(self):
        return self.layer.forward(*self.lengths)

    def backward(self, dy):
        return self.layer.backward(dy)


@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_gradients_of_the_table(bidirectional, offset, device):
    layer = RelativePositionBias(H, 4, 5, bidirectional, seed=0, **FLOAT64).to(device)
    assert list(assert_gradients(WithLengths(layer, T, S, offset), ())) == ["layer.weight"]


def test_t5_buckets_by_hand_bidirectional():
    """32 buckets up to distance 128, as T5's encoder has them. Half of them, 16, are for each direction; the first 8 of
    a half hold one distance each, the other 8 split 8 .. 128 at 8 * 16^(j/8): 8, 11.3, 16, 22.6, 32, 45.3, 64, 90.5."""
    starts = {8: 8, 9: 12, 10: 16, 11: 23, 12: 32, 13: 46, 14: 64, 15: 91}
    expected = {d: d for d in range(8)}
    for bucket, start in starts.items():
        for d in range(start, 300):
            expected[d] = bucket
    distances = np.arange(300)
    assert relative_buckets(-distances).tolist() == [expected[d] for d in range(300)]
    assert relative_buckets(distances).tolist() == [0] + [16 + expected[d] for d in range(1, 300)]


def test_t5_buckets_by_hand_causal():
    """32 buckets for the keys at or before the query: 16 of one distance, 16 split 16 .. 128 at 16 * 8^(j/16)."""
    starts = [16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]
    for j, start in enumerate(starts):  # the paper-and-pencil table really is 16 * 8^(j/16), rounded up
        assert 16 * 8 ** (j / 16) <= start < 16 * 8 ** (j / 16) + 1
    expected = np.arange(300)
    for j, start in enumerate(starts):
        expected[start:] = 16 + j
    assert relative_buckets(-np.arange(300), bidirectional=False).tolist() == expected.tolist()
    assert not relative_buckets(np.arange(300), bidirectional=False).any()  # keys after the query


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (8, 20), (64, 1000), (32, 256), (4, 3)])
def test_t5_buckets_as_torch_computes_them(n_buckets, max_distance, bidirectional):
    """The definition in float32 torch arithmetic, where the last digit decides at the edges of buckets."""
    torch = pytest.importorskip("torch")
    distance = torch.arange(-1500, 1500)
    n = n_buckets // 2 if bidirectional else n_buckets
    back = distance.abs() if bidirectional else (-distance).clamp(min=0)
    exact = n // 2
    log = torch.log(back.float() / exact) / np.log(max_distance / exact)
    far = (exact + (log * (n - exact)).clamp(min=0).long()).clamp(max=n - 1)
    expected = torch.where(back < exact, back, far)
    if bidirectional:
        expected += (distance > 0) * n
    ours = relative_buckets(distance.numpy(), n_buckets, max_distance, bidirectional)
    np.testing.assert_array_equal(ours, expected.numpy())


def test_bias_picks_the_row_of_each_bucket_and_the_offset_moves_the_queries():
    layer = RelativePositionBias(H, seed=0, **FLOAT64)
    bias = layer.forward(T, S)
    assert bias.shape == (1, H, T, S)
    for t in range(T):
        for s in range(S):
            row = t - s if s <= t else 16 + s - t  # all distances here are below 8
            np.testing.assert_array_equal(bias[0, :, t, s], layer.weight.data[row])
    np.testing.assert_array_equal(layer.forward(1, S, offset=T - 1), bias[:, :, -1:])
    np.testing.assert_array_equal(layer.forward(T, S, offset=0), bias)
    with pytest.raises(ValueError, match="offset must be at least 0"):
        layer.forward(T, S, offset=-1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "n_heads must be an integer of at least 1"),
        ((H, 2), "n_buckets must be even, at least 4, and max_distance greater than 0"),
        ((H, 7), "n_buckets must be even"),
        ((H, 32, 8), "max_distance greater than 8"),
        ((H, 32, 16, False), "max_distance greater than 16"),
    ],
)
def test_relative_position_bias_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        RelativePositionBias(*arguments)


def test_alibi_slopes_of_the_paper():
    """Section 3: 1/2, 1/4 .. 1/256 for 8 heads; for 16 the square roots between, from 2^-0.5 to 2^-8."""
    assert alibi_slopes(8).tolist() == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    np.testing.assert_allclose(alibi_slopes(16), [2 ** (-j / 2) for j in range(1, 17)], rtol=1e-15)
    assert alibi_slopes(1).tolist() == [1 / 256]
    # 12 heads, after the authors' code: those of 8, then the first, third, fifth and seventh of 16
    between = [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]
    np.testing.assert_allclose(alibi_slopes(12), [*(2.0**-j for j in range(1, 9)), *between], rtol=1e-15)


def test_alibi_penalises_distance():
    bias = ALiBi(2).forward(3, 3)
    assert bias.dtype == np.float32
    assert bias[0, 0].tolist() == [[0, -1 / 16, -1 / 8], [-1 / 16, 0, -1 / 16], [-1 / 8, -1 / 16, 0]]
    assert bias[0, 1].tolist() == (bias[0, 0] / 16).tolist()
    np.testing.assert_array_equal(ALiBi(2).forward(1, 3, offset=2), bias[:, :, 2:])
    layer = ALiBi(2)
    layer.forward(3, 3)
    assert layer.backward(bias) is None
    assert not layer.parameters()


class BiasedAttention(Module):
    """Attention with T5's bias, as one layer: the bias's gradient reaches the table through the scores."""

    def __init__(self, rng, mask):
        super().__init__(**FLOAT64)
        self.bias = RelativePositionBias(H, 8, 6, seed=rng, **FLOAT64)
        self.attention = MultiHeadAttention(D, H, scale=1.0, dropout=0.3, seed=rng, **FLOAT64)
        self.mask = mask

    def forward(self, query, key, value):
        return self.attention(query, key, value, self.mask, self.bias(query.shape[1], key.shape[1]))

    def backward(self, dy):
        *gradients, dbias = self.attention.backward(dy)
        self.bias.backward(dbias)
        return tuple(gradients)


def test_gradients_through_attention():
    rng = np.random.default_rng(8)
    mask = rng.random((B, 1, T, S)) < 0.7
    mask[1, 0, 2] = False  # a query that may look nowhere
    layer = BiasedAttention(rng, mask)
    layer.replay_dropout(True)
    inputs = (rng.standard_normal((B, T, D)), rng.standard_normal((B, S, D)), rng.standard_normal((B, S, D)))
    assert_gradients(layer, inputs, zero=("w_k.bias",))


def test_alibi_in_attention_prefers_near_keys():
    """With queries of zero all scores are equal, so the weights are those of the bias alone, by hand."""
    attention = MultiHeadAttention(D, 1, bias=False, **FLOAT64)
    x = np.random.default_rng(0).standard_normal((1, 3, D))
    attention.forward(np.zeros((1, 3, D)), x, x, None, ALiBi(1, **FLOAT64).forward(3, 3))
    expected = np.exp(-np.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]]) / 256)
    np.testing.assert_allclose(attention.weights[0, 0], expected / expected.sum(1, keepdims=True), rtol=1e-14)
