"""The museum itself: its right backwards are right, its wrong ones are wrong, and each is fully labelled."""

from pathlib import Path

import numpy as np
import pytest

from transformer_np.checking.evidence import KINDS
from transformer_np.checking.mistakes import LAYERS, MISTAKES
from transformer_np.checking.mistakes.page import page


def name_of(thing):
    return getattr(thing, "title", thing.name).replace(" ", "-")


def drawn(layer, seed):
    rng = np.random.default_rng(seed)
    values = layer.draw(rng)
    y, cache = layer.forward(**values)
    return values, y, rng.normal(size=np.shape(y)), cache


@pytest.mark.parametrize("layer", LAYERS, ids=name_of)
def test_the_right_backward_agrees_with_differences(layer):
    values, _, dy, cache = drawn(layer, 0)
    right, h = layer.backward(dy, cache), 1e-5
    rng = np.random.default_rng(9)
    for name, gradient in right.items():
        # One random direction for each array: enough for a formula, and cheap.
        direction = rng.normal(size=gradient.shape)
        up, down = ({**values, name: values[name] + step * direction} for step in (h, -h))
        slope = (dy * (layer.forward(**up)[0] - layer.forward(**down)[0])).sum() / (2 * h)
        # Central differences at 1e-5: truncation and rounding are both about 1e-9 for values of size 1 to 10.
        assert (gradient * direction).sum() == pytest.approx(slope, rel=1e-7, abs=1e-7), name
        assert gradient.shape == values[name].shape


@pytest.mark.parametrize("layer", LAYERS, ids=name_of)
def test_every_float_array_has_a_gradient(layer):
    values, _, dy, cache = drawn(layer, 0)
    floats = {name for name in layer.shapes if np.asarray(values[name]).dtype.kind == "f"}
    assert set(layer.backward(dy, cache)) == floats


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mistake", MISTAKES, ids=name_of)
def test_a_mistake_is_wrong_unless_it_is_marked_equivalent(mistake, seed):
    _, _, dy, cache = drawn(mistake.layer, seed)
    right = mistake.layer.backward(dy, cache)
    for name, wrong in mistake.wrong(dy, cache).items():
        same = wrong.shape == right[name].shape and np.allclose(wrong, right[name], rtol=1e-10, atol=1e-13)
        assert same == mistake.equivalent, name


def test_there_are_enough_and_each_has_its_own_name():
    wrong = [mistake for mistake in MISTAKES if not mistake.equivalent]
    assert len(wrong) >= 100
    assert len({mistake.title for mistake in MISTAKES}) == len(MISTAKES)


@pytest.mark.parametrize("mistake", MISTAKES, ids=name_of)
def test_every_label_is_filled_in(mistake):
    assert mistake.kind in KINDS
    assert all((mistake.what, mistake.why, mistake.line, mistake.fix, mistake.source))
    assert mistake.what.endswith(".")
    assert mistake.hidden_when or not mistake.equivalent


def test_the_page_is_written_from_the_museum():
    path = Path(__file__).parents[2] / "docs" / "known-mistakes.md"
    assert path.read_text(encoding="utf-8") == page()
