"""`power` measures tests: a strong one, weak ones of known weakness, and useless ones."""

import json

import numpy as np
import pytest

from transformer_np.checking.mistakes import LAYERS, MISTAKES
from transformer_np.checking.mutation_score import power


def slope(forward, arrays, which, direction, dy, h=1e-6):
    """The derivative of sum(dy * forward) along a direction of one array, by central differences."""
    up, down = (
        forward(*[a + step * direction if i == which else a for i, a in enumerate(arrays)])[0] for step in (h, -h)
    )
    return float((dy * (up - down)).sum() / (2 * h))


def directional(forward, backward, ones=False):
    """One random direction for each array; with ones=True the weak upstream of ones."""
    rng = np.random.default_rng(3)
    arrays = forward.example
    y, cache = forward(*arrays)
    dy = np.ones(np.shape(y)) if ones else rng.normal(size=np.shape(y))
    gradients = backward(dy, cache)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    for which, (array, gradient) in enumerate(zip(arrays, gradients, strict=True)):
        if array.dtype.kind != "f":
            assert gradient is None
            continue
        assert gradient.shape == array.shape
        direction = rng.normal(size=array.shape)
        right = slope(forward, arrays, which, direction, dy)
        # Central differences at 1e-6 leave about 1e-8 for sums of some hundred numbers of size 1.
        assert abs((gradient * direction).sum() - right) < 1e-6 * max(1, abs(right))


def test_a_random_direction_catches_every_known_mistake():
    found = power(directional, functions=True)
    assert not found.useless, found.useless
    assert [m.title for m in found.missed] == []
    assert found.total == sum(not m.equivalent for m in MISTAKES)
    assert found.ok
    assert found.score == 1


def test_an_upstream_of_ones_lets_a_zero_softmax_through():
    found = power(lambda f, b: directional(f, b, ones=True), layers=["softmax", "layer norm"], functions=True)
    missed = {m.title for m in found.missed}
    # The sum of a softmax is constant: its right gradient is zero (BP-20, candle#3569), and a factor on zero hides too.
    assert {"softmax/always zero", "softmax/divided by the batch"} <= missed
    assert not found.ok
    assert "softmax/always zero" in found.text()


def test_a_test_that_rejects_everything_is_called_useless():
    found = power(lambda layer: False, layers="linear")
    assert found.total == 0
    assert found.score == 0
    assert not found.ok
    assert "rejects the right backward of linear" in found.text()


def test_a_test_that_accepts_everything_catches_nothing():
    found = power(lambda layer: None, layers="linear")
    assert found.caught == []
    assert len(found.missed) == len(next(layer for layer in LAYERS if layer.name == "linear").mistakes)


def test_a_check_of_dx_only_misses_the_parameters():
    def dx_only(layer):
        (x,) = layer.example
        dy = np.random.default_rng(1).normal(size=layer.forward(x).shape)
        assert np.allclose(layer.backward(dy), dy @ layer.W.data.T)

    found = power(dx_only, layers="linear")
    assert [m.name for m in found.caught] == ["input divided by the batch"]


def test_a_report_with_ok_false_rejects_and_the_result_is_json():
    class Report:
        ok = False

    found = power(lambda layer: Report(), layers="relu")
    read = json.loads(found.to_json())
    assert read["useless"] == {"relu": "it said no"}
    assert read["score"] == 0


def test_parameters_of_an_exhibit_accumulate_their_gradient():
    def twice(layer):
        dy = np.ones(layer.forward(*layer.example).shape)
        layer.backward(dy)
        once = layer.b.grad.copy()
        layer.forward(*layer.example)
        layer.backward(dy)
        assert np.array_equal(layer.b.grad, 2 * once)
        assert [name for name, _ in layer.named_parameters()] == ["W", "b"]
        assert len(layer.parameters()) == 2
        with pytest.raises(RuntimeError, match="forward first"):
            layer.backward(dy)

    assert not power(twice, layers="linear").useless


def test_a_wrong_call_is_refused():
    with pytest.raises(ValueError, match="power: layers: got 'maxpool'"):
        power(lambda layer: None, layers="maxpool")
    with pytest.raises(TypeError, match="power: test"):
        power(3)
