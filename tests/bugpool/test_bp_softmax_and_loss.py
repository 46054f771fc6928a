"""The bug pool's mistakes with softmax and the loss: each case is impossible here, and its right value holds."""

import math

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.layers import Linear, Softmax


def test_bp14_softmax_overflow():
    x = np.array([1.0, -10.0, 1000.0])
    np.testing.assert_array_equal(Softmax()(x), [0, 0, 1])
    # The loss is minus the log-softmax [-999, -1010, 0]; pytest turns any warning into an error.
    losses = [tnp.CrossEntropy()(x[None], np.array([target])) for target in range(3)]
    np.testing.assert_allclose(losses, [999, 1010, 0], rtol=1e-15)


def test_bp16_log_of_softmax():
    loss_fn = tnp.CrossEntropy()
    assert loss_fn(np.array([[100, -21]], "float32"), np.array([1])) == 121.0  # log(softmax) would be -inf
    np.testing.assert_allclose(loss_fn.backward(), [[1, -1]], rtol=1e-7)


def test_bp19_softmax_backward():
    layer = Softmax()
    y = layer(np.array([1.0, 2.0, 3.0]))
    dx = layer.backward(np.array([1.0, 0.0, 0.0]))
    by_hand = [y[0] * (1 - y[0]), -y[0] * y[1], -y[0] * y[2]]  # the diagonal form would stop after the first
    np.testing.assert_allclose(dx, by_hand, rtol=1e-14)
    np.testing.assert_allclose(dx, [0.081925, -0.022033, -0.059892], atol=5e-7)


def test_bp21_label_smoothing_with_a_pad_class():
    probabilities = np.array([[0.05, 0.2, 0.6, 0.1, 0.05]] * 3)
    targets = np.array([2, 1, 0])
    loss_fn = tnp.CrossEntropy(label_smoothing=0.4, ignore_index=0, spread="others")
    a = 0.4 / 3  # eps / (V - 2)
    q = np.array([[0, a, 0.6, a, a], [0, 0.6, a, a, a], [0, 0, 0, 0, 0]])
    terms = np.log(np.where(q > 0, q / probabilities, 1)) * q
    divergence = terms.sum(-1)
    np.testing.assert_allclose(divergence, [0.115073, 0.627759, 0], atol=5e-7)
    # Cross-entropy is that Kullback-Leibler divergence plus the entropy of q, here over two tokens that count.
    entropy = -(0.6 * math.log(0.6) + 0.4 * math.log(a))
    loss = loss_fn(np.log(probabilities), targets)
    assert loss == pytest.approx((divergence[0] + divergence[1] + 2 * entropy) / 2, rel=1e-14)
    dlogits = loss_fn.backward()
    np.testing.assert_allclose(dlogits[:2], (probabilities - q)[:2] / 2, atol=1e-15)
    np.testing.assert_array_equal(dlogits[2], 0)
    # A batch without padding, and a pad class whose probability is exactly zero.
    assert loss_fn(np.log(probabilities), np.array([2, 1, 3])) > 0
    with np.errstate(divide="ignore"):
        with_zero = np.log(np.array([[0, 0.2, 0.6, 0.1, 0.1]]))
    assert tnp.CrossEntropy()(with_zero, np.array([2])) == pytest.approx(-math.log(0.6), rel=1e-14)


def test_bp22_loss_divides_by_padded_rows():
    # With two tokens, a logit that is log(e^L - 1) below the other costs L.
    logits = np.stack([np.log(np.expm1([2.0, 2.0, 0.1, 0.1])), np.zeros(4)], -1)
    targets = np.array([1, 1, 0, 0])
    loss_fn = tnp.CrossEntropy(ignore_index=0)
    assert loss_fn(logits, targets) == pytest.approx(2.0, rel=1e-12)  # not 1.05
    np.testing.assert_array_equal(loss_fn.backward()[2:], 0)
    with pytest.warns(UserWarning, match="no token counts"):
        assert loss_fn(logits, np.zeros(4, int)) == 0.0
    np.testing.assert_array_equal(loss_fn.backward(), 0)


def test_bp23_tokens_versus_sentences_in_accumulation():
    # Micro-batches of 10 tokens that cost 2 each and 100 tokens that cost 1 each.
    def logits_costing(loss, n):
        return np.tile([0.0, np.log(np.expm1(loss))], (n, 1))

    parts = [(logits_costing(2.0, 10), np.zeros(10, int)), (logits_costing(1.0, 100), np.zeros(100, int))]
    loss_fn = tnp.CrossEntropy()
    total, gradients = 0.0, []
    for logits, targets in parts:
        total += loss_fn(logits, targets, n_tokens=110)
        gradients.append(loss_fn.backward())
    assert total == pytest.approx(120 / 110, rel=1e-14)  # 1.090909; the mean of the means is 1.5
    loss_fn(np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))
    np.testing.assert_allclose(np.concatenate(gradients), loss_fn.backward(), rtol=0, atol=1e-12)


def test_bp24_n_1_minus_n():
    # (N, 1) against (N,) would broadcast to N x N. A column of targets is refused.
    logits = np.zeros((3, 4))
    with pytest.raises(ValueError, match=r"targets must have shape \(3,\), got \(3, 1\)"):
        tnp.CrossEntropy()(logits, np.array([[1], [2], [3]]))
    layer = Linear(2, 1, seed=0, dtype="float64")
    layer(np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"dy must have shape \(3, 1\), got float64 of shape \(3,\)"):
        layer.backward(np.ones(3))


def test_bp25_bias_gradient_not_summed():
    layer = Linear(2, 4, seed=0, dtype="float64")
    layer(np.ones((4, 2)))
    layer.backward(np.tile([1.0, 2.0, 3.0, 4.0], (4, 1)))
    assert layer.bias.grad.shape == (4,)
    np.testing.assert_array_equal(layer.bias.grad, [4, 8, 12, 16])
    tnp.SGD(layer.parameters(), lr=0.1).step()
    assert layer.bias.shape == (4,)
    with pytest.raises(ValueError, match=r"grad must be float64 of shape \(4,\)"):
        layer.bias.grad = np.ones((4, 4))


def test_bp26_target_shift():
    """Random tokens cannot be predicted; a model that sees what it should predict gets below ln 8 at once."""
    rng = np.random.default_rng(0)
    losses = {}
    for shift in (1, 0):
        model = tnp.Transformer(
            9, 9, 16, 2, 1, 1, 32, dropout=0.0, max_len=12, norm="pre", tie_embeddings="target", seed=0
        )
        step = tnp.TrainStep(model, tnp.CrossEntropy(), tnp.Adam(model.parameters(), lr=1e-2))
        losses[shift] = []
        for _ in range(60):
            ids = rng.integers(1, 9, (32, 9))
            losses[shift].append(step(np.ones((32, 2), int), ids[:, :-1], ids[:, shift : 8 + shift]))
    # 256 fresh tokens a step: a mean of the last 20 losses strays by far less than 0.02 from its expectation, which
    # cannot be below ln 8.
    assert np.mean(losses[1][-20:]) > math.log(8) - 0.02
    assert losses[0][-1] < 0.5
