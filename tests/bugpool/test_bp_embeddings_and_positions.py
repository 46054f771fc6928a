"""The bug pool's mistakes with embeddings and positions: each is impossible here, and its right value holds."""

import math

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.layers import Embedding, LearnedPositions, OutputProjection, SinusoidalPositions
from transformer_np.layers.positions import sinusoids


def test_bp27_repeated_ids_in_embedding_backward():
    layer = Embedding(4, 1, scaled=False, seed=0, dtype="float64")
    layer(np.array([1, 1, 1]))
    assert layer.backward(np.array([[1.0], [2.0], [3.0]])) is None
    np.testing.assert_array_equal(layer.weight.grad, [[0], [6], [0], [0]])  # fancy-index += would leave 3


def test_bp28_tied_embeddings():
    embedding = Embedding(3, 2, scaled=False, dtype="float64")
    embedding.weight.data[...] = [[1, 0], [0, 1], [1, 1]]
    output = OutputProjection(2, 3, embedding.weight, bias=False, dtype="float64")
    logits = output(embedding(np.array([0, 2])))
    np.testing.assert_array_equal(logits, [[1, 0, 1], [1, 1, 2]])
    embedding.backward(output.backward(np.array([[0.5, -0.5, 0], [0, 0.25, -0.25]])))
    np.testing.assert_array_equal(embedding.weight.grad, [[1, -0.5], [-0.25, 0.25], [-0.5, -0.25]])


@pytest.mark.parametrize(("tie", "n_matrices"), [(False, 3), ("target", 2), (True, 1)])
def test_bp28_tied_matrix_is_one_parameter_for_the_optimiser(tie, n_matrices):
    model = tnp.Transformer(7, 7, 8, 2, 1, 1, 16, tie_embeddings=tie)
    matrices = [p for p in model.parameters() if p.shape == (7, 8)]
    assert len(matrices) == n_matrices
    optimiser = tnp.Adam(model.parameters())
    assert len(optimiser.state["m"]) == len(model.parameters())
    with pytest.raises(ValueError, match="listed twice"):
        tnp.Adam([matrices[0], matrices[0]])


@pytest.mark.parametrize("tie", [False, "target"])
def test_bp30_initial_loss_with_tying(tie):
    vocab_size = 50257
    model = tnp.Transformer(10, vocab_size, 16, 2, 1, 1, 32, dropout=0.0, tie_embeddings=tie, seed=0)
    rng = np.random.default_rng(0)
    ids = rng.integers(1, vocab_size, (8, 17))
    logits = model.forward(rng.integers(1, 10, (8, 3)), ids[:, :-1])
    # The expected loss when any token may be the target: its mean over all of them, not over the few of one batch.
    loss = (np.log(np.exp(logits.astype(float)).sum(-1)) - logits.mean(-1)).mean()
    # The embedding starts as N(0, 1/D) and the last layer norm gives rows of unit variance, so logits are about N(0, 1)
    # and cost ln V + 1/2 = 11.32. Had the table been N(0, 1), the loss would be near ln V + D/2 = 18.8.
    assert loss == pytest.approx(math.log(vocab_size) + 0.5, abs=0.03)


def test_bp31_odd_d_model():
    y = SinusoidalPositions(5)(np.zeros((1, 3, 5)))
    row = []  # by hand: sin and cos of 1 / 10000^(2i/5), the last pair without its cosine
    for i in range(3):
        row += [math.sin(10000 ** (-2 * i / 5)), math.cos(10000 ** (-2 * i / 5))]
    np.testing.assert_allclose(y[0, 1], row[:5], rtol=1e-14)
    np.testing.assert_allclose(y[0, 1], [0.841471, 0.540302, 0.0251162, 0.9996845, 0.000630957], rtol=1e-6)
    np.testing.assert_array_equal(y[0, 0], [0, 1, 0, 1, 0])


def test_bp32_integer_power():
    # Position 1 holds the sine of the frequencies themselves: 1 and 0.01 for d = 4.
    np.testing.assert_allclose(np.arcsin(sinusoids(2, 4)[1, 0::2]), [1, 0.01], rtol=1e-12)


@pytest.mark.parametrize("positions", [SinusoidalPositions, LearnedPositions])
def test_bp33_longer_than_max_len(positions):
    x = np.zeros((2, 3, 4), "float32")
    with pytest.raises(ValueError, match="length 3 from position 0 passes max_len 1"):
        positions(4, 1)(x)  # a table of one row would broadcast silently
    with pytest.raises(ValueError, match="length 3 from position 4 passes max_len 6"):
        positions(4, 6)(x, offset=4)  # a slice past the end would be shorter silently
    assert positions(4, 6)(x, offset=3).shape == (2, 3, 4)


def test_bp33_longer_than_max_len_in_a_model():
    model = tnp.Transformer(5, 5, 8, 2, 1, 1, 16, max_len=4)
    ok, long = np.ones((1, 4), int), np.ones((1, 5), int)
    for src, tgt in ((long, ok), (ok, long)):
        with pytest.raises(ValueError, match="length 5 from position 0 passes max_len 4"):
            model.forward(src, tgt)
