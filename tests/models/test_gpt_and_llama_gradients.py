"""GPT and Llama against finite differences: every number of every parameter, dropout on, texts padded anywhere."""

import numpy as np
import pytest
from finite_differences import assert_gradients, away_from_kinks

from transformer_np import GPT, CrossEntropy, Llama, Module

# Pairwise distinct with B = 4 and T = 7.
V, H, D, F, K = 9, 2, 6, 8, 4
IDS = np.random.default_rng(0).integers(0, V, (4, 7))
MASK = np.array([[1, 1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0], [0, 1, 1, 0, 1, 1, 0]], bool)
FLOAT64 = {"dtype": "float64"}

MODELS = {
    "GPT": lambda rng: GPT(V, D, H, 1, F, 0.2, 11, seed=rng, **FLOAT64),
    "GPT, untied, window, no bias": lambda rng: GPT(
        V, D, H, 1, F, 0.2, 11, False, window=3, bias=False, seed=rng, **FLOAT64
    ),
    "Llama": lambda rng: Llama(V, D, H, 1, F, 1, 0.2, d_head=K, seed=rng, **FLOAT64),
    "Llama, tied, window, interleaved": lambda rng: Llama(
        V, D, H, 1, F, 2, 0.2, None, True, d_head=K, window=4, layout="interleaved", seed=rng, **FLOAT64
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_gradient(name, device):
    def build(rng):
        return MODELS[name](rng), (IDS, MASK)

    assert_gradients(*away_from_kinks(build, device), zero=("w_k.bias",) if name == "GPT" else ())


class WithLoss(Module):
    """What training differentiates: the loss of a model of two layers, padding left out."""

    def __init__(self, model):
        super().__init__(**FLOAT64)
        self.model, self.loss_fn = model, CrossEntropy(label_smoothing=0.1, ignore_index=0)

    def forward(self, ids, targets):
        return self.loss_fn(self.model(ids), targets)

    def backward(self, dloss):
        self.model.backward(self.loss_fn.backward(dloss))


@pytest.mark.parametrize("kind", [GPT, Llama])
def test_every_gradient_of_the_loss(kind, device):
    text = np.where(MASK, 1 + IDS % (V - 1), 0)

    def build(rng):
        options = {"dropout": 0.2, "max_len": 6, "pad_id": 0, "seed": rng, **FLOAT64}
        model = kind(V, D - 2, H, 2, F - 3, **options)
        model.embedding.weight.data *= 50  # of unit size: the norms divide by it, which is steep near 0
        return WithLoss(model), (text[:, :-1], text[:, 1:])

    assert_gradients(*away_from_kinks(build, device), zero=("w_k.bias",) if kind is GPT else ())
