"""Every gradient in a trace equals finite differences: for every layer and every model, down to the last local name."""

import numpy as np
import pytest
from finite_differences import away_from_kinks
from moved_steps import prove, unproved
from traced_layers import LAYERS, MODELS

import transformer_np as tnp
from transformer_np import layers

# An input that was not given, such as a first state, has a gradient but no value that could be moved.
NO_VALUE = ("dh0", "dc0", "dstates")


def is_explained(name):
    """Whether there is no value to move: see NO_VALUE; blocks of attention are checked below."""
    return name.split(".")[-1] in NO_VALUE


@pytest.mark.parametrize("name", LAYERS | MODELS)
def test_gradients(name):
    layer, inputs = away_from_kinks((LAYERS | MODELS)[name])
    # In a model the layers stand once more, so there one entry of each array will do.
    trace, wrong, right = prove(layer, inputs, n_entries=1 if name in MODELS else 2)
    assert not wrong
    blockwise = {s.module for s in trace.steps if s.kind == "BlockwiseAttention"}
    left = [n for n in unproved(trace, right) if not is_explained(n) and trace.step(n).module not in blockwise]
    assert not left
    assert len(right) >= len(layer.parameters())


def test_every_layer_and_model_is_among_them():
    built = [build(np.random.default_rng(0))[0] for build in (LAYERS | MODELS).values()]
    kinds = {type(part).__name__ for layer in built for _, part in layer.named_modules()}
    assert {name for name in layers.__all__ if isinstance(getattr(layers, name), type)} <= kinds
    models = {name for name in tnp.__all__ if isinstance(getattr(tnp, name), type)} & set(dir(tnp.models))
    assert models <= kinds


def test_a_name_that_lies_is_found_out():
    """A backward whose dhidden is something else on its way to a right result."""

    class Lying(layers.FeedForward):
        def forward(self, x):
            hidden = self.linear1(x)
            return self.linear2(self.activation(hidden))

        def backward(self, dy):
            dhidden = self.linear2.backward(dy)
            return self.linear1.backward(self.activation.backward(dhidden))

    _, wrong, _ = prove(Lying(4, 5, "sigmoid", seed=0, dtype="float64"), (np.ones((2, 4)),))
    assert set(wrong) == {"dhidden"}


def test_blocks_are_pieces_of_the_plain_gradients():
    """Block by block the same dscores as in one piece, to rounding."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 2, n, 3)) for n in (5, 4, 4))
    dy = rng.standard_normal((2, 2, 5, 3))
    plain = tnp.trace(layers.ScaledDotProductAttention(), dy=dy)(q, k, v)["dscores"]
    trace = tnp.trace(layers.BlockwiseAttention(block=2), dy=dy)(q, k, v)
    pieces = [s.value for s in trace.backward if s.variable == "dscores" and s.source.startswith("dscores *=")]
    blocks = [(rows, columns) for rows in range(0, 5, 2) for columns in range(0, 4, 2)]
    assert len(pieces) == len(blocks)
    for piece, (rows, columns) in zip(pieces, blocks, strict=True):
        np.testing.assert_allclose(piece, plain[..., rows : rows + 2, columns : columns + 2], rtol=0, atol=1e-14)


def test_gradients_by_name():
    """trace.gradients holds those of parameters and of values, also where a name is set several times in a loop."""
    layer = layers.RNN(3, 2, seed=0, dtype="float64")
    trace = tnp.trace(layer)(np.random.default_rng(0).standard_normal((1, 4, 3)))
    for t in range(1, 5):
        assert trace.gradients[trace.step(f"h_t.{t}").name] is trace[f"dh_t.{5 - t}"]
    assert trace.gradients["weight_hh"] is trace["weight_hh.grad"]
    assert np.array_equal(trace["weight_hh.grad"], trace["dweight_hh"])
