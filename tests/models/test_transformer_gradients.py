"""The whole Transformer against finite differences: every number of every parameter, dropout on, sentences padded."""

import numpy as np
import pytest
from finite_differences import assert_gradients, away_from_kinks

from transformer_np import CrossEntropy, Module, Transformer

# Pairwise distinct with B = 4, S = 5, T = 7 and K = D / H = 3.
V_SRC, V_TGT, H, D, F = 9, 10, 2, 6, 8
SRC = np.array([[3, 4, 5, 8, 7], [6, 3, 3, 0, 0], [8, 0, 0, 0, 0], [5, 6, 7, 4, 0]])
TGT = np.array([[1, 4, 9, 6, 6, 3, 8], [1, 3, 5, 0, 0, 0, 0], [1, 7, 8, 8, 5, 4, 0], [1, 0, 0, 0, 0, 0, 0]])


def transformer(rng, norm="post", positions="sinusoidal", tie=False, **options):
    """A tiny Transformer in float64, with dropout; tied throughout it has one vocabulary."""
    v_src = V_TGT if tie is True else V_SRC
    options = {"seed": rng, "dtype": "float64", **options}
    return Transformer(v_src, V_TGT, D, H, 1, 1, F, 0.2, 11, norm, positions, tie, **options)


# One layer in each stack keeps the number of differences down: stacks of two are in the tests of the layers.
@pytest.mark.parametrize(("norm", "positions", "tie"), [("post", "sinusoidal", False), ("pre", "learned", "target")])
def test_every_gradient(norm, positions, tie, device):
    def build(rng):
        return transformer(rng, norm, positions, tie), (SRC, TGT)

    assert_gradients(*away_from_kinks(build, device), zero=("w_k.bias",))


class TransformerWithLoss(Module):
    """What training differentiates: the loss of a Transformer, as one function of its parameters."""

    def __init__(self, model, loss_fn):
        super().__init__(dtype="float64")
        self.model, self.loss_fn = model, loss_fn

    def forward(self, src, tgt, targets):
        return self.loss_fn(self.model(src, tgt), targets)

    def backward(self, dloss):
        self.model.backward(self.loss_fn.backward(dloss))


def test_every_gradient_of_the_smoothed_loss(device):
    def build(rng):
        loss_fn = CrossEntropy(label_smoothing=0.1, ignore_index=0)
        targets = np.concatenate([TGT[:, 1:], np.full((len(TGT), 1), 2)], 1)
        return TransformerWithLoss(transformer(rng, tie=True, final_norm=True), loss_fn), (SRC, TGT, targets)

    assert_gradients(*away_from_kinks(build, device), zero=("w_k.bias",))
