"""A right layer never fails: the layers of this package and small ones of other make, over many seeds."""

import argparse

import numpy as np
import pytest
from sample_layers import Chain, LayerNorm, Linear, Max, ReLU, Residual, Softmax, x_of

from transformer_np.checking import gradcheck
from transformer_np.cli.gradcheck import subjects


def samples(seed):
    yield Linear(5, 4, seed), x_of(3, 5, seed=seed)
    yield LayerNorm(), x_of(3, 6, seed=seed)
    yield Softmax(), 10 * x_of(3, 6, seed=seed)
    yield ReLU(), x_of(3, 6, seed=seed)
    yield Max(), np.round(x_of(4, 6, seed=seed), 1)  # with ties now and then
    yield Chain(Linear(5, 8, seed), ReLU(), Residual(LayerNorm(8)), Linear(8, 3, seed)), x_of(4, 5, seed=seed)


def alarms(seeds):
    """Everything that is not PASS or KINK for these seeds."""
    found = []
    for seed in seeds:
        for layer, x in samples(seed):
            report = gradcheck(layer, x, seed=seed)
            if report.status not in ("PASS", "KINK"):
                found.append((seed, str(report)))
    return found


def own_alarms(seeds):
    found = []
    for seed in seeds:
        for name, layer, inputs, _ in subjects(argparse.Namespace(all=True, seed=seed)):
            report = gradcheck(layer, *inputs, seed=seed, replay=True)
            if report.status not in ("PASS", "KINK"):
                found.append((name, seed, str(report)))
    return found


def test_small_layers():
    assert alarms(range(10)) == []


def test_the_layers_of_this_package():
    assert own_alarms(range(1)) == []


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3, 1e6])
def test_sizes_of_inputs_do_not_matter(scale):
    for layer in (Linear(), LayerNorm(5), ReLU()):
        report = gradcheck(layer, scale * x_of(3, 5))
        assert report.status == "PASS", report


def test_inputs_far_from_zero():
    """A mean of 1e4 costs four digits to cancellation; the error bar has to know."""
    for seed in range(5):
        assert gradcheck(LayerNorm(), 1e4 + x_of(3, 6, seed=seed), seed=seed).status == "PASS"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 25))  # in parts, for as many cores
def test_two_hundred_seeds(first):
    assert alarms(range(first, first + 25)) == []
    assert own_alarms(range(first, first + 25)) == []


class Cancelling:
    """y = softmax(x + b): b shifts all scores alike, so its gradient is a sum that cancels, but for rounding."""

    def __init__(self):
        self.b, self.db = np.array([0.7]), np.zeros(1)

    def forward(self, x):
        e = np.exp(x + self.b - (x + self.b).max(-1, keepdims=True))
        self.y = e / e.sum(-1, keepdims=True)
        return self.y

    def backward(self, dy):
        dx = self.y * (dy - (dy * self.y).sum(-1, keepdims=True))
        self.db = np.array([dx.sum()])
        return dx


@pytest.mark.parametrize("seed", range(20))
def test_what_rounding_leaves_of_a_cancelled_sum_is_no_mistake(seed):
    x = np.random.default_rng([seed, 5]).standard_normal((2, 3, 4))
    assert gradcheck(Cancelling(), x, seed=seed, contracts=False).status != "FAIL"
