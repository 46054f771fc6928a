"""The table's numbers against NumPy's, its filters, and how traces are compared."""

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np import layers

X = np.array([[0.0, 1.0, -2.0, 4.0]])


def test_numbers():
    row = tnp.trace(layers.ReLU())(X).table("forward").rows[1]
    assert (row.name, row.shape, row.dtype) == ("y", (1, 4), "float64")
    assert (row.mean, row.zeros, row.nans) == (5 / 4, 0.5, 0)
    assert row.std == pytest.approx(np.sqrt((25 + 1 + 25 + 121) / 64), rel=1e-15)
    assert row.norm == pytest.approx(np.sqrt(17), rel=1e-15)


def test_nan_is_counted_and_nothing_warns():
    row = tnp.trace(layers.ReLU())(np.array([np.nan, np.inf, 1.0])).table("forward").rows[0]
    assert row.nans == 1
    assert np.isnan(row.mean)


def test_filters():
    trace = tnp.trace(layers.FeedForward(4, 8, seed=0, dtype="float64"))(X)
    assert {r.phase for r in trace.table("backward").rows} == {"backward"}
    assert {r.name.split(".")[0] for r in trace.table(module="linear1").rows} == {"linear1"}
    assert len(trace.table()) == len(trace)
    assert len(trace.table("loss")) == 0
    with pytest.raises(ValueError, match="phase must be one of"):
        trace.table("sideways")
    with pytest.raises(KeyError, match=r"layer 'linear3'; layers are linear1, activation"):
        trace.table(module="linear3")


def test_it_prints():
    trace = tnp.trace(layers.FeedForward(4, 8, seed=0, dtype="float64"))(X)
    text = str(trace.table(module="linear1"))
    assert "(N, d_out) = (1, 8)" in text
    assert text.splitlines()[0].split() == ["name", "shape", "dtype", "mean", "std", "norm", "zeros", "NaN"]
    assert trace.table()._repr_html_().count("<tr>") == len(trace) + 1
    assert str(trace).startswith(f"Trace of FeedForward: {len(trace)} steps (")
    assert len(str(trace).splitlines()) < 10


def test_equal_traces():
    layer = layers.FeedForward(4, 8, seed=0, dtype="float64")
    same = tnp.trace(layer)(X).compare(tnp.trace(layer)(X))
    assert same
    assert str(same) == "The traces agree in every step."


def test_the_first_difference():
    layer = layers.FeedForward(4, 8, seed=0, dtype="float64")
    one = tnp.trace(layer)(X)
    k = int(one["dropout.y"][0].argmax())
    layer.linear2.weight.data[k, 0] += 0.5
    found = one.compare(two := tnp.trace(layer)(X))
    assert not found
    assert found.name == "linear2.y.1"
    assert found.parameters == ("linear2.weight",)
    assert found.index == (0, 0)
    assert abs(found.theirs - found.mine) == pytest.approx(0.5 * one["dropout.y"][0, k], abs=1e-15)
    assert "First difference at linear2.y.1" in str(found)
    assert one.compare(two, rtol=10)


def test_other_shapes_types_and_steps():
    one = tnp.trace(layers.ReLU())(X)
    assert "shapes (1, 4) and (2, 4)" in str(one.compare(tnp.trace(layers.ReLU())(np.repeat(X, 2, 0))))
    assert "types float64 and float32" in str(one.compare(tnp.trace(layers.ReLU())(X.astype(np.float32))))
    assert "the other trace has no such step" in str(tnp.trace(layers.LayerNorm(4, dtype="float64"))(X).compare(one))


def test_a_loss_that_differs():
    x = np.array([[1.0, 2.0, 3.0]])
    one, two = (tnp.trace(tnp.CrossEntropy(smoothing))(x, np.array([1])) for smoothing in (0.0, 0.3))
    assert not one.compare(two)
    assert one.compare(two).n_steps >= 3


def test_nan_equals_nan():
    x = np.array([np.nan, 1.0])
    assert tnp.trace(layers.ReLU())(x).compare(tnp.trace(layers.ReLU())(x))
    found = tnp.trace(layers.ReLU())(np.array([2.0, 1.0])).compare(tnp.trace(layers.ReLU())(x), rtol=100)
    assert (found.name, found.n_differing) == ("x", 1)
