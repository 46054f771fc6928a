"""The fast update of Adam, scatter-add, and sum and maximum of rows equal the plain ones."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_np import SGD, Adam, AdamW, Parameter
from transformer_np.layers.embedding import add_rows, add_rows_plain
from transformer_np.layers.softmax import row_max, row_sums
from transformer_np.optim.adam import adam_step, adam_step_plain


@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple),
    piece=st.integers(1, 40),
    betas=st.tuples(st.floats(0, 0.999), st.floats(0, 0.999)),
    t=st.integers(1, 1000),
    decay=st.sampled_from([0.0, 1e-4, 0.1]),
    dtype=st.sampled_from(["float32", "float64"]),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=150)
def test_adam_step(shape, piece, betas, t, decay, dtype, seed):
    rng = np.random.default_rng(seed)
    p, g, m = (rng.standard_normal(shape).astype(dtype) for _ in range(3))
    v = np.square(rng.standard_normal(p.shape)).astype(dtype)
    settings_of_step = (1e-3 / (1 - betas[0] ** t), betas, 1e-8, 1 - betas[1] ** t, decay)
    fast, plain = [a.copy() for a in (p, m, v)], [a.copy() for a in (p, m, v)]
    g_before = g.copy()
    adam_step(fast[0], g, *fast[1:], *settings_of_step, piece=piece)
    adam_step_plain(plain[0], g, *plain[1:], *settings_of_step)
    np.testing.assert_array_equal(g, g_before)
    for a, b in zip(fast, plain, strict=True):
        assert a.dtype == b.dtype == np.dtype(dtype)
        np.testing.assert_allclose(a, b, rtol=0, atol=8 * np.finfo(dtype).eps * max(1, abs(b).max()))


@pytest.mark.parametrize("kind", [Adam, AdamW])
def test_a_parameter_that_is_a_view_is_updated_all_the_same(kind):
    rng = np.random.default_rng(0)
    value, gradient = rng.standard_normal((4, 6)), rng.standard_normal((4, 6))
    plain, transposed = Parameter(value.copy()), Parameter(value.T.copy().T)  # one of them not contiguous
    plain.grad, transposed.grad = gradient, gradient.T.copy().T
    for p in (plain, transposed):
        kind([p], lr=0.1).step()
    assert abs(plain.data - value).min() > 0
    np.testing.assert_allclose(transposed.data, plain.data, rtol=0, atol=1e-15)


@given(
    v=st.integers(1, 12),
    d=st.integers(1, 5),
    ids=st.lists(st.integers(0, 11), min_size=1, max_size=60),
    id_dtype=st.sampled_from(["int64", "int32", "uint8"]),
)
@settings(deadline=None, max_examples=150)
def test_add_rows(v, d, ids, id_dtype):
    ids = np.array(ids, id_dtype) % v
    rng = np.random.default_rng(len(ids))
    table, rows = rng.standard_normal((v, d)), rng.standard_normal((len(ids), d))
    fast, plain, by_hand = table.copy(), table.copy(), table.copy()
    add_rows(fast, ids, rows)
    add_rows_plain(plain, ids, rows)
    for i, row in zip(ids, rows, strict=True):
        by_hand[i] += row
    np.testing.assert_allclose(plain, by_hand, rtol=0, atol=1e-14)
    np.testing.assert_allclose(fast, by_hand, rtol=0, atol=1e-13)
    untouched = np.setdiff1d(np.arange(v), ids)
    np.testing.assert_array_equal(fast[untouched], table[untouched])


@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 300), st.integers(1, 60)),
    dtype=st.sampled_from(["float32", "float64"]),
    masked=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=100)
def test_row_max_and_row_sums(shape, dtype, masked, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape).astype(dtype)
    atol = 4 * np.finfo(dtype).eps * abs(x).sum(-1).max()
    np.testing.assert_allclose(row_sums(x), x.sum(-1, keepdims=True), rtol=0, atol=atol)
    if masked:
        x[rng.random(shape) < 0.7] = -np.inf
    np.testing.assert_array_equal(row_max(x), x.max(-1, keepdims=True))
    assert row_max(x).dtype == row_sums(x).dtype == x.dtype


@pytest.mark.parametrize("kind", [Adam, AdamW, SGD])
def test_small_parameters_updated_together_are_updated_the_same_to_the_bit(kind):
    shapes = [(7,), (3, 5), (), (70, 70), (4, 1, 2), (70,)]  # one of them large
    results = []
    for together in (True, False):
        rng = np.random.default_rng(0)
        parameters = [
            Parameter(rng.standard_normal(shape).astype("float32" if shape != (7,) else "float64")) for shape in shapes
        ]
        parameters[1].data = parameters[1].data.copy(order="F")
        optimizer = kind(parameters, lr=0.1)
        for _ in range(3):
            for p in parameters[:-1]:  # the last never gets a gradient
                p.grad = rng.standard_normal(p.shape).astype(p.data.dtype)
            optimizer.step() if together else optimizer.step(lambda *args: map(*args))
        results.append([p.data for p in parameters] + [b for bs in optimizer.state.values() for b in bs])
    for i, (one, other) in enumerate(zip(*results, strict=True)):
        assert one.dtype == other.dtype
        if i % len(shapes) == 1 and kind is not SGD:  # alone, an array in another order takes the plain way
            np.testing.assert_allclose(one, other, rtol=1e-6)
        else:
            np.testing.assert_array_equal(one, other)


def test_an_update_that_looks_at_a_whole_parameter_gets_it_alone():
    """Steps of one length for each parameter: laid end to end, two parameters would share it."""

    class Normed(Adam):
        def update(self, p, lr, m, v):
            p.data -= lr * p.grad / np.sqrt((p.grad**2).sum())

    parameters = [Parameter(np.zeros(2)), Parameter(np.zeros(2))]
    parameters[0].grad, parameters[1].grad = np.array([3.0, 4.0]), np.array([0.0, 0.5])
    Normed(parameters, lr=1.0).step()
    np.testing.assert_allclose([p.data for p in parameters], [[-0.6, -0.8], [0, -1]], rtol=0, atol=1e-15)


@pytest.mark.parametrize("kind", [Adam, AdamW])
def test_going_on_from_a_saved_state_is_the_same_to_the_bit(kind):
    rng = np.random.default_rng(0)
    whole = [Parameter(rng.standard_normal((3, 4))), Parameter(rng.standard_normal(5))]
    gradients = [[rng.standard_normal(p.shape) for p in whole] for _ in range(10)]

    def run(parameters, optimizer, steps):
        for step in steps:
            for p, g in zip(parameters, gradients[step], strict=True):
                p.grad = g.copy()
            optimizer.step()

    parts = copy.deepcopy(whole)
    run(whole, kind(whole, lr=0.1), range(10))
    first = kind(parts, lr=0.1)
    run(parts, first, range(4))
    second = kind(parts, lr=0.1)
    second.load_state_dict(first.state_dict())
    run(parts, second, range(4, 10))
    for p, q in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(p.data, q.data)
