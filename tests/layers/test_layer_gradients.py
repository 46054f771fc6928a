"""Every layer against finite differences, in float64, with random parameters and a random upstream gradient."""

import numpy as np
import pytest
from finite_differences import assert_gradients, away_from_kinks
from layer_cases import CASES, FLOAT64, B, D, F, T, V

from transformer_np.layers import Embedding, LearnedPositions, OutputProjection, SinusoidalPositions


@pytest.mark.parametrize("case", CASES)
def test_gradients(case, device):
    layer, inputs = away_from_kinks(CASES[case], device)
    # A key's bias adds the same number to all scores of a query, which the softmax does not see.
    assert_gradients(layer, inputs, zero=("w_k.bias",))


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("kind", [SinusoidalPositions, LearnedPositions])
def test_positions_from_an_offset(kind, offset):
    rng = np.random.default_rng(0)
    layer = kind(D, F, seed=1, **FLOAT64)
    dy = rng.standard_normal((B, T, D))
    layer.forward(rng.standard_normal((B, T, D)), offset)
    np.testing.assert_array_equal(layer.backward(dy), dy)
    for p in layer.parameters():
        expected = np.zeros((F, D))
        expected[offset : offset + T] = dy.sum(0)
        np.testing.assert_allclose(p.grad, expected, rtol=0, atol=1e-15)


def test_one_matrix_as_embedding_and_output_gathers_both_gradients():
    embedding = Embedding(V, D, seed=0, **FLOAT64)
    output = OutputProjection(D, V, weight=embedding.weight, **FLOAT64)
    assert output.weight is embedding.weight
    ids, rng = np.array([[1, 4, 1]]), np.random.default_rng(0)
    dlogits = rng.standard_normal((1, 3, V))
    y = embedding.forward(ids)
    output.forward(y)
    dy = output.backward(dlogits)
    embedding.backward(dy)
    expected = np.einsum("btv,btd->vd", dlogits, y)
    for n, i in enumerate(ids[0]):
        expected[i] += np.sqrt(D) * dy[0, n]
    np.testing.assert_allclose(embedding.weight.grad, expected, rtol=1e-14)
