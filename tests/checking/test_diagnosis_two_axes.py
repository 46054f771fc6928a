"""Diagnosis of a learner's most common layer: rows and columns only, with no axis for a sequence."""

import numpy as np
import pytest

from transformer_np.checking import gradcheck

WRONG = {
    "W divided by the batch": lambda x, w, dy: (dy @ w.T, x.T @ dy / len(x), dy.sum(0)),
    "W transposed": lambda x, w, dy: (dy @ w.T, (dy.T @ x).T[::-1], dy.sum(0)),
    "b not summed right": lambda x, w, dy: (dy @ w.T, x.T @ dy, dy.mean(0)),
    "x sign": lambda x, w, dy: (-(dy @ w.T), x.T @ dy, dy.sum(0)),
    "x without W": lambda x, w, dy: (np.ones_like(x), x.T @ dy, dy.sum(0)),
}


@pytest.mark.parametrize("shape", [(4, 3, 5), (3, 3, 3)])  # (N, d_in, d_out), and with nothing to tell the axes apart
@pytest.mark.parametrize("mistake", WRONG)
def test_every_failure_is_diagnosed(mistake, shape):
    n, d_in, d_out = shape
    rng = np.random.default_rng([1, 2])
    x, w, b = rng.normal(size=(n, d_in)), rng.normal(size=(d_in, d_out)), rng.normal(size=d_out)

    def forward(x, w, b):
        return x @ w + b, (x, w)

    def backward(dy, cache):
        return WRONG[mistake](*cache, dy)

    report = gradcheck((forward, backward), x, w, b)
    assert report.status == "FAIL"
    assert report.diagnoses
    assert "no diagnosis" not in str(report)


def test_a_mean_instead_of_a_sum_is_named():
    rng = np.random.default_rng([3, 4])
    x, w = rng.normal(size=(4, 3)), rng.normal(size=(3, 5))
    pair = (lambda x, w: (x @ w, (x, w))), (lambda dy, c: (dy @ c[1].T, c[0].T @ dy / len(dy)))
    report = gradcheck(pair, x, w)
    assert report.diagnoses[0].array == "w"
    assert report.diagnoses[0].kind == "constant factor"


def test_inputs_drawn_with_the_same_seed_are_not_the_upstream_gradient():
    x = np.random.default_rng(0).standard_normal((2, 3, 5))
    seen = []

    class Probe:
        def forward(self, x):
            return x * 2.0

        def backward(self, dy):
            seen.append(dy.copy())
            return dy * 2.0

    assert gradcheck(Probe(), x, seed=0).ok
    assert not any(np.allclose(np.abs(np.corrcoef(dy.ravel(), x.ravel())[0, 1]), 1) for dy in seen if dy.any())
