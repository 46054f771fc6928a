"""Claims of "Attention Is All You Need" that a test can hold."""

import math

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.layers import (
    DecoderLayer,
    Encoder,
    EncoderLayer,
    MultiHeadAttention,
    ScaledDotProductAttention,
    SinusoidalPositions,
    Softmax,
)
from transformer_np.layers.positions import sinusoids


@pytest.mark.parametrize("k", [1, 7, 100])
def test_a_shift_of_positions_is_a_fixed_rotation(k):
    """Section 3.5: "for any fixed offset k, PE(pos+k) can be represented as a linear function of PE(pos)"."""
    d = 16
    table = sinusoids(300, d)
    rotation = np.zeros((d, d))
    for i in range(0, d, 2):
        angle = k / 10000 ** (i / d)
        c, s = math.cos(angle), math.sin(angle)
        # sin(a + b) = cos b sin a + sin b cos a,  cos(a + b) = -sin b sin a + cos b cos a
        rotation[i : i + 2, i : i + 2] = [[c, s], [-s, c]]
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(d), atol=1e-15)
    np.testing.assert_allclose(table[k:], table[:-k] @ rotation.T, rtol=0, atol=1e-12)
    # The layer adds just this table.
    np.testing.assert_array_equal(SinusoidalPositions(d)(np.zeros((1, 300, d)))[0], table)


def test_wavelengths_form_a_geometric_progression():
    """Section 3.5: "from 2 pi to 10000 * 2 pi". The upper end is approached: the last is 10000^((D-2)/D) * 2 pi."""
    d = 512
    row = sinusoids(2, d)[1]
    wavelengths = 2 * math.pi / np.arctan2(row[0::2], row[1::2])
    assert wavelengths[0] == pytest.approx(2 * math.pi, rel=1e-12)
    assert wavelengths[-1] == pytest.approx(10000 ** ((d - 2) / d) * 2 * math.pi, rel=1e-9)
    assert 0.96 * 10000 * 2 * math.pi < wavelengths[-1] < 10000 * 2 * math.pi
    np.testing.assert_allclose(wavelengths[1:] / wavelengths[:-1], 10000 ** (2 / d), rtol=1e-9)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_without_positions_the_encoder_is_permutation_equivariant(norm):
    """Section 3.5: "our model contains no recurrence and no convolution", so order must be injected."""
    encoder = Encoder(2, 16, 4, 24, dropout=0.0, norm=norm, seed=0, dtype="float64")
    rng = np.random.default_rng(0)
    x, order = rng.standard_normal((2, 7, 16)), rng.permutation(7)
    np.testing.assert_allclose(encoder(x[:, order]), encoder(x)[:, order], rtol=0, atol=1e-13)
    add = SinusoidalPositions(16)
    assert abs(encoder(add(x[:, order])) - encoder(add(x))[:, order]).max() > 0.1


def test_softmax_with_a_masked_score():
    """Section 3.2.3: masking sets "all values in the input of the softmax which correspond to illegal connections"."""
    y = Softmax()(np.array([1.0, 2.0, 3.0]), np.array([True, True, False]))
    np.testing.assert_allclose(y, [1 / (1 + math.e), math.e / (1 + math.e), 0], rtol=1e-15)
    np.testing.assert_allclose(y, [0.2689, 0.7311, 0], atol=5e-5)


def n_weights(module):
    """Count what is in matrices: no biases, gammas and betas."""
    return sum(p.size for p in module.parameters() if p.data.ndim == 2)


@pytest.mark.parametrize("d", [16, 64])
def test_a_layer_has_4_d2_attention_and_8_d2_feed_forward_weights(d):
    """Section 3.2.2 with h d_k = h d_v = d_model, and section 3.3 with d_ff = 4 d_model."""
    encoder, decoder = EncoderLayer(d, 4, 4 * d), DecoderLayer(d, 4, 4 * d)
    assert n_weights(encoder.self_attention) == n_weights(decoder.cross_attention) == 4 * d * d
    assert n_weights(encoder.feed_forward) == n_weights(decoder.feed_forward) == 8 * d * d
    assert (n_weights(encoder), n_weights(decoder)) == (12 * d * d, 16 * d * d)
    for n_heads in (1, 2, 8):  # "the total computational cost is similar to that of single-head attention"
        assert n_weights(MultiHeadAttention(d, n_heads)) == 4 * d * d


@pytest.mark.parametrize("d_k", [4, 16, 64, 256])
def test_variance_of_the_scores(d_k):
    """Footnote 4: q.k has variance d_k for components of mean 0 and variance 1; divided by sqrt(d_k) it is 1.

    For normal components E[(q.k)^4] = 3 d² + 6 d, so a variance estimated from n samples strays by a relative standard
    deviation of sqrt((2 + 6/d) / n). Five of those are allowed, beyond which chance goes once in two million.
    """
    n = 5000
    bound = 5 * math.sqrt((2 + 6 / d_k) / n)
    rng = np.random.default_rng(d_k)
    q, key = rng.standard_normal((n, 1, d_k)), rng.standard_normal((n, 1, d_k))
    assert (q * key).sum(-1).var() / d_k == pytest.approx(1, abs=bound)
    # The layer's own score of that key, read off its weights beside a key of zeros, whose score is 0.
    attention = ScaledDotProductAttention()
    keys = np.concatenate([key, np.zeros_like(key)], 1)
    attention(q, keys, keys)
    scores = np.log(attention.weights[:, 0, 0] / attention.weights[:, 0, 1])
    assert scores.var() == pytest.approx(1, abs=bound)


def test_heads_meet_in_w_o_only():
    """Section 3.2.2: the heads are concatenated and once again projected. Until then each stands alone."""
    d, n_heads, d_k = 12, 3, 4
    attention = MultiHeadAttention(d, n_heads, seed=0, dtype="float64")
    attention.w_o.weight.data[...] = np.eye(d)
    x = np.random.default_rng(0).standard_normal((2, 5, d))
    before = attention(x, x, x)
    columns = slice(d_k, 2 * d_k)  # head 1
    for linear in (attention.w_q, attention.w_k, attention.w_v):
        linear.weight.data[:, columns] += 0.5
        linear.bias.data[columns] -= 0.3
    after = attention(x, x, x)
    changed = (before != after).any((0, 1))
    np.testing.assert_array_equal(changed, [False] * 4 + [True] * 4 + [False] * 4)
    attention.w_o.weight.data[...] = np.random.default_rng(1).standard_normal((d, d))
    mixed = attention(x, x, x)
    attention.w_v.weight.data[:, columns] += 0.5
    assert (mixed != attention(x, x, x)).any((0, 1)).all()


def test_every_position_is_a_weighted_mean_of_values():
    """Section 3.2: the output is "a weighted sum of the values" whose weights add up to one."""
    rng = np.random.default_rng(0)
    attention = ScaledDotProductAttention()
    q, k, v = (rng.standard_normal((2, n, 4)) for n in (3, 6, 6))
    y = attention(q, k, v)
    np.testing.assert_allclose(attention.weights.sum(-1), 1, rtol=1e-14)
    assert (y <= v.max(1, keepdims=True)).all()
    assert (y >= v.min(1, keepdims=True)).all()


@pytest.mark.parametrize(("eps", "vocab_size"), [(0.1, 5), (0.3, 37)])
def test_label_smoothing_target(eps, vocab_size):
    """Section 5.4 with eps = 0.1, after Szegedy et al.: 0.9 + eps/V at the true token, eps/V at each other."""
    loss_fn = tnp.CrossEntropy(label_smoothing=eps)
    logits = np.random.default_rng(0).standard_normal((1, vocab_size))
    loss = loss_fn(logits, np.array([3]))
    q = np.exp(logits) / np.exp(logits).sum() - loss_fn.backward()  # since dlogits = p - q
    expected = np.full(vocab_size, eps / vocab_size)
    expected[3] += 1 - eps
    np.testing.assert_allclose(q[0], expected, atol=1e-15)
    assert loss == pytest.approx(-float(expected @ (logits[0] - np.log(np.exp(logits).sum()))), rel=1e-14)
    # "This hurts perplexity": the loss cannot fall below the entropy of q, and reaches it where p = q.
    entropy = -float(expected @ np.log(expected))
    assert loss_fn(np.log(expected)[None], np.array([3])) == pytest.approx(entropy, rel=1e-14)


@pytest.mark.parametrize(("d_model", "warmup_steps"), [(512, 400), (64, 10), (1, 1)])
def test_the_schedule_peaks_at_warmup_steps(d_model, warmup_steps):
    """Equation 3: rising in a straight line, then falling with the inverse square root of the step."""
    lr = tnp.NoamSchedule(d_model, warmup_steps)
    rates = [lr(step) for step in range(4 * warmup_steps + 1)]
    assert int(np.argmax(rates)) == warmup_steps
    assert rates[warmup_steps] == pytest.approx((d_model * warmup_steps) ** -0.5, rel=1e-14)
    assert rates[4 * warmup_steps] == pytest.approx(rates[warmup_steps] / 2, rel=1e-14)
    for step in range(1, 4 * warmup_steps):
        paper = d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)
        assert rates[step] == pytest.approx(paper, rel=1e-14)


def test_the_base_model_has_about_65_million_parameters():
    """Table 3, base: N = 6, D = 512, H = 8, F = 2048; section 5.1: a shared vocabulary of about 37000 tokens.

    Ours has 63,119,496. The paper's figure of 65 million is rounded and 3 % higher, as a vocabulary of about 40,700
    tokens would give; its tokens are "about 37000", and what else it counts it does not say.
    """
    d, f, vocab_size = 512, 2048, 37000
    attention, feed_forward, norm = 4 * (d * d + d), d * f + f + f * d + d, 2 * d
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    shared_matrix, output_bias = vocab_size * d, vocab_size
    by_hand = 6 * encoder_layer + 6 * decoder_layer + shared_matrix + output_bias
    assert by_hand == 63_119_496
    model = tnp.Transformer(vocab_size, vocab_size, tie_embeddings=True)
    assert model.n_parameters() == by_hand
    assert by_hand == pytest.approx(65e6, rel=0.03)
