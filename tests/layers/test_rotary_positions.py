"""Rotary positions: finite differences, complex numbers, the relative property, both layouts, and lengths."""

import numpy as np
import pytest
from finite_differences import assert_gradients

from transformer_np.layers import RotaryPositions
from transformer_np.layers.rotary import scale_frequencies

B, H, T, K = 2, 3, 5, 8
LAYOUTS = ["interleaved", "halves"]


def halves_order(k):
    """Where the features of the interleaved layout lie in the layout of halves."""
    return np.concatenate([np.arange(0, k, 2), np.arange(1, k, 2)])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("positions", [None, np.array([3, 0, 4, 4, 1]), np.arange(2 * 5).reshape(2, 1, 5)])
def test_gradients(layout, positions, device):
    x = np.random.default_rng(0).standard_normal((B, H, T, K))
    if device != "numpy":
        import cupy

        x, positions = cupy.asarray(x), None if positions is None else cupy.asarray(positions)
    layer = RotaryPositions(K, layout)
    given = (x,) if positions is None else (x, np.int64(0), positions)
    assert_gradients(layer, given)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_pair_is_a_complex_number_times_a_unit_one(layout):
    """Equation 13 of the paper: (x1 + i x2) e^(i m theta)."""
    x = np.random.default_rng(1).standard_normal((B, H, T, K))
    y = RotaryPositions(K, layout, base=500.0).forward(x, offset=3)
    if layout == "halves":
        inverse = np.argsort(halves_order(K))
        x, y = x[..., inverse], y[..., inverse]
    angles = np.arange(3, 3 + T)[:, None] * 500.0 ** (-2 * np.arange(K // 2) / K)
    expected = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
    np.testing.assert_allclose(y[..., 0::2] + 1j * y[..., 1::2], expected, rtol=0, atol=1e-14)


def test_layouts_differ_by_the_order_of_the_features_only():
    x = np.random.default_rng(2).standard_normal((B, H, T, K))
    order = halves_order(K)
    interleaved, halves = RotaryPositions(K).forward(x), RotaryPositions(K, "halves").forward(x[..., order])
    np.testing.assert_array_equal(halves, interleaved[..., order])
    assert abs(RotaryPositions(K, "halves").forward(x) - interleaved).max() > 0.1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_scores_depend_on_distances_only(layout):
    """Shift queries and keys by the same number of places: their products stay; shift one: they change."""
    q, k = np.random.default_rng(3).standard_normal((2, B, H, T, K))
    layer = RotaryPositions(K, layout)

    def scores(q_offset, k_offset):
        return layer.forward(q, q_offset) @ layer.forward(k, k_offset).swapaxes(-1, -2)

    np.testing.assert_allclose(scores(0, 0), scores(1000, 1000), rtol=0, atol=1e-11)
    np.testing.assert_allclose(scores(2, 5), scores(40, 43), rtol=0, atol=1e-11)
    assert abs(scores(0, 0) - scores(0, 1)).max() > 0.1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_rotation_keeps_lengths_and_backward_turns_back(layout):
    x = np.random.default_rng(4).standard_normal((B, H, T, K))
    layer = RotaryPositions(K, layout)
    y = layer.forward(x, 7)
    np.testing.assert_allclose((y**2).sum(-1), (x**2).sum(-1), rtol=1e-14)
    np.testing.assert_allclose(layer.backward(y), x, rtol=0, atol=1e-14)


def test_positions_row_by_row_equal_offsets():
    x = np.random.default_rng(5).standard_normal((B, H, T, K))
    layer = RotaryPositions(K)
    by_row = layer.forward(x, positions=np.array([[[2, 3, 4, 5, 6]], [[0, 1, 2, 3, 4]]]))
    np.testing.assert_array_equal(by_row[:1], layer.forward(x[:1], 2))
    np.testing.assert_array_equal(by_row[1:], layer.forward(x[1:]))


def test_one_step_at_a_time_equals_all_at_once():
    """The bug of BP-51: a new token's position counts on from those before."""
    x = np.random.default_rng(6).standard_normal((B, H, T, K))
    layer = RotaryPositions(K)
    whole = layer.forward(x)
    for t in range(T):
        np.testing.assert_array_equal(layer.forward(x[:, :, t : t + 1], offset=t), whole[:, :, t : t + 1])


def test_float32_angles_are_right_far_out():
    """Angles made in float32 would be off by 1e-3 here."""
    x = np.ones((1, 1, 1, K), "float32")
    y = RotaryPositions(K).forward(x, 100_000)
    assert y.dtype == np.float32
    expected = RotaryPositions(K).forward(x.astype("float64"), 100_000)
    np.testing.assert_allclose(y, expected, rtol=0, atol=3e-7)


def test_bad_arguments_are_named():
    x = np.zeros((B, H, T, K))
    layer = RotaryPositions(K, max_len=9)
    cases = [
        (lambda: RotaryPositions(7), "d_k must be even"),
        (lambda: RotaryPositions(K, "neox"), "layout must be one of 'interleaved', 'halves'"),
        (lambda: RotaryPositions(K, base=1.0), "base must be greater than 1"),
        (lambda: layer.forward(x[..., :6]), "x must have last axis 8"),
        (lambda: layer.forward(x, 5), "length 5 from position 5 passes max_len 9"),
        (lambda: layer.forward(x, -1), "offset must be at least 0"),
        (lambda: layer.forward(x, positions=np.arange(5.0)), "positions must be an array of integers"),
        (lambda: layer.forward(x, positions=[0, 1, 2, 3, 4]), "positions must be an array of integers"),
        (lambda: layer.forward(x, positions=np.arange(4)), r"positions must broadcast to \(2, 3, 5\)"),
        (lambda: layer.forward(x, positions=np.arange(-1, 4)), "offset must be at least 0, got -1"),
        (lambda: layer.forward(x, positions=np.arange(5, 10)), "passes max_len 9"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()


LLAMA3 = {"kind": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_len": 8192}


def test_linear_scaling_is_a_slower_walk():
    x = np.random.default_rng(5).standard_normal((1, 1, 4, K))
    slow = RotaryPositions(K, scaling={"kind": "linear", "factor": 3.0}).forward(x, positions=np.array([0, 3, 6, 9]))
    np.testing.assert_allclose(slow, RotaryPositions(K).forward(x), rtol=0, atol=1e-14)


def test_llama3_scaling_by_hand():
    """Wavelengths 2 pi / f against 8192 / 4 = 2048 and 8192 / 1: shorter ones are kept, longer ones 8 times slower."""
    plain = 10000.0 ** (-np.arange(0, 10, 2) / 8)  # wavelengths 6.28, 62.8, 628, 6283, 62832
    share = (8192 * 1e-3 / (2 * np.pi) - 1) / 3  # of f = 1e-3, which turns 1.3 times
    expected = [1.0, 0.1, 0.01, 1e-3 * (share + (1 - share) / 8), 1e-4 / 8]
    scaled = scale_frequencies(plain, **LLAMA3)
    np.testing.assert_allclose(scaled, expected, rtol=1e-13)
    assert 0 < share < 1


@pytest.mark.parametrize("scaling", [{"kind": "linear", "factor": 3.0}, {**LLAMA3, "original_max_len": 16}], ids=str)
def test_gradients_with_scaling(scaling):
    x = np.random.default_rng(6).standard_normal((B, H, T, K))
    assert_gradients(RotaryPositions(K, scaling=scaling), (x,))


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ("linear", "scaling must be None or a dict whose kind is one of 'linear', 'llama3', got 'linear'"),
        ({"kind": "yarn", "factor": 2.0}, "'yarn'"),
        ({"kind": "linear"}, "'linear' takes factor, got nothing"),
        ({"kind": "linear", "factor": 2.0, "beta": 1}, "takes factor, got factor, beta"),
        ({"kind": "linear", "factor": 0.5}, "factor of scaling must be at least 1, got 0.5"),
        ({**LLAMA3, "low_freq_factor": 4.0}, "0 < low_freq_factor < high_freq_factor, got 4.0 and 4.0"),
    ],
    ids=str,
)
def test_scalings_that_make_no_sense(scaling, message):
    with pytest.raises(ValueError, match=message):
        RotaryPositions(K, scaling=scaling)
