"""Seq2SeqRNN and ConvEncoder against finite differences: every number of every parameter, dropout on, padding on."""

import numpy as np
import pytest
from finite_differences import TOLERANCE, assert_gradients, away_from_kinks, gradient_pairs, relative_errors

import transformer_np as tnp
from transformer_np.models.conv_encoder import ConvBlock

V_SRC, V_TGT, D = 7, 6, 4  # B = 3, S = 5, T = 3
SRC = np.array([[3, 4, 5, 6, 1], [6, 3, 3, 0, 0], [2, 0, 4, 0, 0]])  # one with padding in its middle
TGT = np.array([[1, 4, 5], [1, 3, 0], [1, 0, 0]])
FLOAT64 = {"dtype": "float64"}


@pytest.mark.parametrize(
    ("cell", "attention", "bidirectional"), [("lstm", True, False), ("lstm", False, False), ("gru", True, True)]
)
def test_seq2seq_rnn(cell, attention, bidirectional, device):
    def build(rng):
        sizes = (V_SRC, V_TGT, D, 1, cell, attention, bidirectional, 0.2)
        return tnp.Seq2SeqRNN(*sizes, seed=rng, **FLOAT64), (SRC, TGT)

    assert_gradients(*away_from_kinks(build, device))


@pytest.mark.parametrize(("cell", "bidirectional"), [("lstm", True), ("rnn", False)])
def test_two_layers_by_their_weights_from_state_to_state(cell, bidirectional, device):
    def build(rng):
        sizes = (V_SRC, V_TGT, D, 2, cell, True, bidirectional, 0.2)
        return tnp.Seq2SeqRNN(*sizes, seed=rng, **FLOAT64), (SRC, TGT)

    model, inputs = away_from_kinks(build, device)
    for name in (name for name, _ in model.named_parameters() if name.endswith("weight_hh")):
        assert relative_errors(gradient_pairs(model, inputs, only=name))[name] < TOLERANCE


@pytest.mark.parametrize("padding", ["same", "causal"])
def test_conv_encoder(padding, device):
    def build(rng):
        return tnp.ConvEncoder(V_SRC, 5, D, 2, 3, padding, 0.2, 6, seed=rng, **FLOAT64), (SRC,)

    assert_gradients(*away_from_kinks(build, device))


def test_conv_block_by_its_input(device):
    def build(rng):
        return ConvBlock(D, 2, seed=rng, **FLOAT64), (rng.standard_normal((3, 5, D)), SRC != 0)

    assert_gradients(*away_from_kinks(build, device))
