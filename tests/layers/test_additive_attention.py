"""Additive attention: finite differences, the formula in loops, masks, and what it refuses."""

import numpy as np
import pytest
from finite_differences import assert_gradients, randomise

from transformer_np.layers import AdditiveAttention
from transformer_np.masks import padding_mask
from transformer_np.module import inference

B, T, S, D_QUERY, D_KEY, D_VALUE, A = 2, 3, 4, 5, 6, 7, 8
FLOAT64 = {"dtype": "float64"}


def build(rng):
    """A layer with random parameters, and its three inputs."""
    layer = randomise(AdditiveAttention(D_QUERY, D_KEY, A, seed=rng, **FLOAT64), rng)
    shapes = ((B, T, D_QUERY), (B, S, D_KEY), (B, S, D_VALUE))
    return layer, [rng.standard_normal(shape) for shape in shapes]


@pytest.mark.parametrize("masked", [False, True])
def test_gradients(masked, device):
    rng = np.random.default_rng(0)
    layer, inputs = build(rng)
    mask = None
    if masked:
        mask = rng.random((B, 1, T, S)) < 0.6
        mask[1, 0, 2] = False  # a query that may look nowhere
    inputs = (*inputs, mask)
    if device != "numpy":
        import cupy

        layer, inputs = layer.to(device), tuple(a if a is None else cupy.asarray(a) for a in inputs)
    assert_gradients(layer, inputs)


def test_formula_pair_by_pair():
    """Section A.1.2 of Bahdanau et al.: e_ts = vᵀ tanh(W s_t + U h_s), for one query and one key at a time."""
    layer, (query, key, value) = build(np.random.default_rng(1))
    w, u, v = layer.w_q.weight.data, layer.w_k.weight.data, layer.v.data
    y = layer.forward(query, key, value)
    for b in range(B):
        for t in range(T):
            e = [v @ np.tanh(query[b, t] @ w + key[b, s] @ u) for s in range(S)]
            p = np.exp(e) / np.exp(e).sum()
            np.testing.assert_allclose(layer.weights[b, 0, t], p, rtol=1e-13)
            np.testing.assert_allclose(y[b, t], sum(p[s] * value[b, s] for s in range(S)), rtol=1e-12, atol=1e-13)


def test_masked_keys_have_no_say():
    layer, (query, key, value) = build(np.random.default_rng(2))
    ids = np.array([[5, 6, 0, 0], [0, 0, 0, 0]])
    y = layer.forward(query, key, value, padding_mask(ids))
    assert not y[1].any()  # nothing to look at: zeros, and no NaN
    dquery, dkey, dvalue = layer.backward(np.ones_like(y))
    assert not dquery[1].any()
    assert not dkey[0, 2:].any()
    assert not dvalue[0, 2:].any()
    short = layer.forward(query[:1], key[:1, :2], value[:1, :2])
    np.testing.assert_allclose(y[:1], short, rtol=0, atol=1e-15)


def test_contract():
    layer, inputs = build(np.random.default_rng(3))
    before = [a.copy() for a in inputs]
    y = layer.forward(*inputs)
    dy = np.ones_like(y)
    first = layer.backward(dy)
    for a, b in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(dy, 1)
    with pytest.raises(RuntimeError, match="call forward first"):
        layer.backward(dy)
    gradients = [p.grad.copy() for p in layer.parameters()]
    layer.forward(*inputs)
    for a, b in zip(layer.backward(dy), first, strict=True):
        np.testing.assert_array_equal(a, b)
    for p, g in zip(layer.parameters(), gradients, strict=True):
        np.testing.assert_allclose(p.grad, 2 * g, rtol=1e-14)  # gradients add up
    with inference():
        layer.forward(*inputs)
    assert layer.weights is None
    single = AdditiveAttention(D_QUERY, D_KEY, A)
    y = single.forward(*(a.astype("float32") for a in inputs))
    assert all(a.dtype == np.float32 for a in (y, *single.backward(y)))


def test_bad_arguments_are_named():
    layer, (query, key, value) = build(np.random.default_rng(4))
    cases = [
        (lambda: AdditiveAttention(D_QUERY, D_KEY, 0), "d_attention must be an integer of at least 1"),
        (lambda: layer.forward(key, key, value), r"query must have shape \(any, any, 5\)"),
        (lambda: layer.forward(query, key[:1], value), r"key must have shape \(2, any, 6\)"),
        (lambda: layer.forward(query, key, value[:, :3]), r"value must have shape \(2, 4, any\)"),
        (lambda: layer.forward(query, key, value, np.ones((B, T, S), bool)), "must have 2 axes"),
        (lambda: layer.forward(query, key, value, np.ones((B, 1, T, S))), "mask must be boolean"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
