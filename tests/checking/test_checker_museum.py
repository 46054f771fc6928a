"""Every known mistake of the museum is caught by a plain `gradcheck`, and every right layer there passes."""

import pytest

from transformer_np.checking import gradcheck
from transformer_np.checking.mistakes import LAYERS
from transformer_np.checking.mutation_score import Exhibit


def status(layer, mistake, seed):
    exhibit = Exhibit(layer, mistake, seed)
    return gradcheck(exhibit, *exhibit.example, seed=seed, explain=False).status


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_none_of_the_known_mistakes_escapes(layer):
    assert status(layer, None, 0) in ("PASS", "KINK")
    caught = {m.name: status(layer, m, 0) in ("FAIL", "SHAPE") for m in layer.mistakes if not m.equivalent}
    assert [name for name, found in caught.items() if not found] == []


def test_there_are_at_least_a_hundred():
    assert sum(not m.equivalent for layer in LAYERS for m in layer.mistakes) >= 100
