"""The contract of the layers that came after the paper: what forward and backward keep, change, and leave alone."""

from functools import partial

import numpy as np
import pytest

from transformer_np import layers
from transformer_np.backend import float_dtype
from transformer_np.module import inference

B, T, S, D = 2, 5, 4, 6


MASK = np.arange(T) < np.array([5, 3])[:, None]
CASES = {  # how the layer is made, and its inputs: shapes of float arrays, or the array itself, or an integer
    "GELU": (partial(layers.GELU), [(B, T, D)]),
    "GELU, tanh": (partial(layers.GELU, "tanh"), [(B, T, D)]),
    "SiLU": (partial(layers.SiLU), [(B, T, D)]),
    "Sigmoid": (partial(layers.Sigmoid), [(B, T, D)]),
    "Tanh": (partial(layers.Tanh), [(B, T, D)]),
    "GatedFeedForward": (partial(layers.GatedFeedForward, D, 7, dropout=0.2), [(B, T, D)]),
    "RMSNorm": (partial(layers.RMSNorm, D), [(B, T, D)]),
    "RotaryPositions": (partial(layers.RotaryPositions, D), [(B, 3, T, D)]),
    "RelativePositionBias": (partial(layers.RelativePositionBias, 3), [T, S]),
    "ALiBi": (partial(layers.ALiBi, 3), [T, S]),
    "PatchEmbedding": (partial(layers.PatchEmbedding, 2, 3, D), [(B, 3, 4, 6)]),
    "PatchEmbedding, one patch": (partial(layers.PatchEmbedding, 2, 1, D), [(1, 1, 2, 2)]),
    "Pooler": (partial(layers.Pooler, D), [(B, T, D)]),
    "RNN": (partial(layers.RNN, D, 3), [(B, T, D), (B, 3), MASK]),
    "LSTM": (partial(layers.LSTM, D, 3), [(B, T, D), (B, 3), (B, 3), MASK]),
    "LSTM, one step": (partial(layers.LSTM, D, 3), [(1, 1, D), (1, 3), (1, 3)]),
    "GRU": (partial(layers.GRU, D, 3, reverse=True), [(B, T, D), (B, 3)]),
    "AdditiveAttention": (partial(layers.AdditiveAttention, D, D, 3), [(B, T, D), (B, S, D), (B, S, 7)]),
    "Conv1D": (partial(layers.Conv1D, D, 3, 1), [(B, T, D)]),
    "Conv1D, masked": (partial(layers.Conv1D, D, 3, 3, "same"), [(B, T, D), MASK]),
    "MultiHeadAttention, rotary and bias": (
        partial(layers.MultiHeadAttention, D, 2, 1, d_head=4, dropout=0.2, rotary="halves"),
        [(B, T, D), (B, T, D), (B, T, D), np.tri(T, dtype=bool), (1, 2, T, T), np.arange(T) + 3],
    ),
}


def prepare(case, dtype="float64"):
    """The case's layer, fresh, and its inputs, read-only."""
    make, kinds = CASES[case]
    layer = make(seed=0, dtype=dtype)
    layer.replay_dropout(True)
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(kind).astype(dtype) if isinstance(kind, tuple) else kind for kind in kinds]
    for a in inputs:
        if isinstance(a, np.ndarray):
            a.flags.writeable = False
    return layer, inputs


def as_tuple(value):
    """The arrays of a result."""
    return [a for a in (value if isinstance(value, tuple) else (value,)) if a is not None]


def upstream(outputs):
    """A random, read-only gradient for each output."""
    rng = np.random.default_rng(2)
    gradients = [rng.standard_normal(y.shape).astype(y.dtype) for y in outputs]
    for dy in gradients:
        dy.flags.writeable = False
    return gradients


def run(layer, inputs):
    """Forward and backward: outputs, gradients of the inputs, and of the parameters by then."""
    outputs = as_tuple(layer.forward(*inputs))
    gradients = as_tuple(layer.backward(*upstream(outputs)))
    return outputs, gradients, [p.grad.copy() for p in layer.parameters()]


@pytest.mark.parametrize("case", CASES)
def test_results_are_arrays_of_their_own(case):
    layer, inputs = prepare(case)
    before = layer.state_dict()
    outputs = as_tuple(layer.forward(*inputs))
    dys = upstream(outputs)
    gradients = as_tuple(layer.backward(*dys))
    given = [*(a for a in inputs if isinstance(a, np.ndarray)), *dys, *(p.data for p in layer.parameters())]
    for result in (*outputs, *gradients, *(p.grad for p in layer.parameters())):
        assert not any(np.shares_memory(result, a) for a in given)
        result[...] = np.nan  # what the caller does with a result reaches nothing that the layer keeps
    layer.zero_grad()
    assert all(np.isfinite(a).all() for results in run(layer, inputs) for a in results)
    for name, value in layer.state_dict().items():
        np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize("case", CASES)
def test_what_the_caller_does_with_an_output_does_not_reach_backward(case):
    layer, inputs = prepare(case)
    _, expected, of_parameters = run(layer, inputs)
    layer.zero_grad()
    outputs = as_tuple(layer.forward(*inputs))
    dys = upstream(outputs)
    if case not in ("Sigmoid", "Tanh", "Pooler"):  # these keep their output, as `save_for_backward` says
        for y in outputs:
            y[...] = np.nan
    got = as_tuple(layer.backward(*dys))
    for a, b in zip((*got, *(p.grad for p in layer.parameters())), (*expected, *of_parameters), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("case", CASES)
def test_one_forward_one_backward_and_gradients_add_up(case):
    layer, inputs = prepare(case)
    with pytest.raises(RuntimeError, match="call forward first"):
        layer.backward(np.zeros(1))
    outputs, first, once = run(layer, inputs)
    with pytest.raises(RuntimeError, match="call forward first"):
        layer.backward(*upstream(outputs))
    _, second, twice = run(layer, inputs)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(once, twice, strict=True):
        np.testing.assert_allclose(b, 2 * a, rtol=0, atol=1e-14 * abs(a).max())


@pytest.mark.parametrize("case", CASES)
def test_an_upstream_gradient_that_does_not_fit_uses_nothing_up(case):
    layer, inputs = prepare(case)
    outputs, expected, _ = run(layer, inputs)
    layer.forward(*inputs)
    dys = upstream(outputs)
    for wrong in (dys[0][..., :-1], dys[0][None], dys[0].astype("float32")):
        with pytest.raises(ValueError, match="upstream gradient dy"):
            layer.backward(wrong)
    for a, b in zip(as_tuple(layer.backward(*dys)), expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("case", CASES)
def test_inference_keeps_nothing(case):
    layer, inputs = prepare(case)
    layer.eval()
    expected = as_tuple(layer.forward(*inputs))
    with inference():
        got = as_tuple(layer.forward(*inputs))
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert all(module._saved is None for _, module in layer.named_modules())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("case", CASES)
def test_no_type_changes_on_the_way(case, dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    dtype = float_dtype(dtype)
    for a in (a for arrays in run(*prepare(case, dtype)) for a in arrays):
        assert a.dtype == dtype
        assert np.isfinite(a).all()


@pytest.mark.parametrize("case", CASES)
def test_float32_is_float64_but_for_rounding(case):
    layer, inputs = prepare(case, "float32")
    double, _ = prepare(case)
    double.load_state_dict({name: value.astype("float64") for name, value in layer.state_dict().items()}).eval()
    doubled = [a.astype("float64") if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in inputs]
    pairs = zip(as_tuple(layer.eval().forward(*inputs)), as_tuple(double.forward(*doubled)), strict=True)
    for single, reference in pairs:
        np.testing.assert_allclose(single, reference, rtol=0, atol=3e-6 * abs(reference).max())


@pytest.mark.parametrize("case", CASES)
def test_the_seed_makes_the_layer(case):
    make, _ = CASES[case]
    values, same, others = (
        [p.data for p in make(seed=seed, dtype="float64").parameters() if p.data.std()] for seed in (0, 0, 1)
    )
    for a, b, c in zip(values, same, others, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (a != c).all()
