"""BERT, T5 and ViT against finite differences: every number of every parameter, dropout on, sentences padded."""

import numpy as np
import pytest
from finite_differences import TOLERANCE, assert_gradients, away_from_kinks, gradient_pairs, relative_errors

import transformer_np as tnp
from transformer_np.backend import array_module

V, H, F, K = 8, 2, 7, 1  # pairwise distinct with B = 3, S = 5 and T = 4; T5's K need not be D / H
SRC = np.array([[3, 4, 5, 7, 1], [6, 3, 3, 0, 0], [7, 2, 0, 0, 0]])
TGT = np.array([[0, 4, 6, 3], [0, 3, 5, 5], [0, 7, 0, 0]])
SEGMENTS = np.array([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0]])
FLOAT64 = {"dtype": "float64"}


class Joined(tnp.Module):
    """A model with two heads as one with a single, flat output, so that one upstream array reaches both."""

    def __init__(self, model):
        super().__init__(dtype="float64")
        self.model = model

    def forward(self, *inputs):
        outputs = self.model.forward(*inputs)
        self.shapes = [y.shape for y in outputs]
        return array_module(*outputs).concatenate([y.ravel() for y in outputs])

    def backward(self, dy):
        first = int(np.prod(self.shapes[0]))
        return self.model.backward((dy[:first].reshape(self.shapes[0]), dy[first:].reshape(self.shapes[1])))


def bert(rng, heads):
    """One layer is enough: stacks of two are in the tests of the layers."""
    model = tnp.BERT(V, 4, H, 1, F, 0.2, 6, 2, seed=rng, heads=heads, **FLOAT64)
    return Joined(model) if heads == "pretraining" else model


@pytest.mark.parametrize("heads", ["pretraining", "words", None])
def test_bert(heads, device):
    def build(rng):
        return bert(rng, heads), (SRC, SEGMENTS)

    assert_gradients(*away_from_kinks(build, device), zero=("w_k.bias",))


def test_bert_with_the_sum_of_its_losses(device):
    words = np.where(np.random.default_rng(0).random(SRC.shape) < 0.4, SRC, -100)

    class Loss(tnp.Module):  # the checker's inputs are arrays
        def __init__(self):
            super().__init__(dtype="float64")
            self.model = tnp.BERT(V, 4, H, 1, F, 0.2, 6, 2, seed=0, **FLOAT64)
            self.loss_fn = tnp.SumOfLosses(tnp.CrossEntropy(ignore_index=-100), tnp.CrossEntropy(label_smoothing=0.1))

        def forward(self, ids, segments, words, is_next):
            return self.loss_fn(self.model(ids, segments), (words, is_next))

        def backward(self, dloss):
            self.model.backward(self.loss_fn.backward(dloss))

    def build(rng):
        return Loss(), (SRC, SEGMENTS, words, np.array([0, 1, 1]))

    assert_gradients(*away_from_kinks(build, device), zero=("w_k.bias",))


T5_VERSIONS = {
    "1.0": {},
    "1.1": {"activation": "gelu_tanh", "gated": True, "tie_embeddings": False},
}


@pytest.mark.parametrize("version", T5_VERSIONS)
def test_t5(version, device):
    def build(rng):
        options = {"n_buckets": 4, "max_distance": 4, "seed": rng, **T5_VERSIONS[version], **FLOAT64}
        model = tnp.T5(V, 4, H, 1, 1, F, K, 0.2, **options)
        return model, (SRC, TGT)

    assert_gradients(*away_from_kinks(build, device))


def test_t5_layers_share_one_bias(device):
    def build(rng):
        model = tnp.T5(V, 4, H, 2, 2, F, K, 0.2, n_buckets=4, max_distance=4, seed=rng, **FLOAT64)
        return model, (SRC, TGT, SRC != 0, np.array([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0]], bool))

    model, inputs = away_from_kinks(build, device)
    names = [name for name, _ in model.named_parameters() if "position_bias" in name]
    assert names == ["encoder.position_bias.weight", "decoder.position_bias.weight"]
    for name in names:
        assert relative_errors(gradient_pairs(model, inputs, only=name))[name] < TOLERANCE


def test_vit(device):
    def build(rng):
        model = tnp.ViT((2, 6), 2, 2, 5, 4, H, 1, F, 0.2, seed=rng, **FLOAT64)
        return model, (rng.standard_normal((3, 2, 2, 6)),)

    assert_gradients(*away_from_kinks(build, device), zero=("w_k.bias",))
