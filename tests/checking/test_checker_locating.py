"""Finding the wrong entries of a large array, and the wrong layer of a model."""

import numpy as np
from sample_layers import Chain, LayerNorm, Linear, ReLU, Residual, Softmax, broken, x_of

from transformer_np.checking import gradcheck
from transformer_np.checking.contracts import Reference
from transformer_np.checking.differences import Differences
from transformer_np.checking.locate import locate
from transformer_np.checking.trial import Trial
from transformer_np.checking.walk import sublayers


def test_three_wrong_entries_of_64_by_64_cost_fewer_than_500_forwards():
    wrong = {(3, 5), (3, 6), (60, 11)}
    for seed in range(5):
        with Trial(Linear(64, 64), [x_of(4, 64, seed=seed)], {}) as trial:
            outputs = trial.forward()
            rng = np.random.default_rng(seed)
            dys = trial.draw_upstream(outputs, rng)
            trial.backward(dys)
            trial.find_arrays()
            reference = Reference(*trial.gradients(dys)[:1], dys, *trial.gradients(dys)[1:])
            gradient = reference.gradients["W"]
            for index in wrong:
                gradient[index] *= 1.1
            watched = next(w for w in trial.arrays if w.name == "W")
            differences = Differences(trial, dys, reference.outputs, rng)
            before = trial.forwards
            entries, more = locate(differences, watched, gradient)
            assert {e.index for e in entries} == wrong
            assert not more
            assert trial.forwards - before < 500  # one by one it would be 16384
            assert all(abs(e.analytic / e.numeric - 1.1) < 1e-6 for e in entries)


def test_a_large_array_is_located_in_the_report():
    def backward(self, dy):
        dx = Linear.backward(self, dy)
        self.dW[17, 40] = 0
        return dx

    report = gradcheck(broken(Linear, backward=backward)(64, 64), x_of(4, 64))
    assert [e.index for e in report.array("W").entries] == [(17, 40)]
    assert report.array("W").n_wrong == 1


def model(norm=LayerNorm, inner=Linear):
    return Chain(Linear(5, 6), Residual(Chain(norm(6), inner(6, 6), ReLU())), LayerNorm(6), Linear(6, 3))


def test_sub_layers_are_found_in_lists_and_attributes_of_any_object():
    assert [path for path, _ in sublayers(model())] == [
        "layers.0",
        "layers.1",
        "layers.1.inner",
        "layers.1.inner.layers.0",
        "layers.1.inner.layers.1",
        "layers.1.inner.layers.2",
        "layers.2",
        "layers.3",
    ]


def test_the_first_wrong_layer_is_named():
    wrong = broken(LayerNorm, backward=lambda self, dy: LayerNorm.backward(self, dy) * 0.9)
    report = gradcheck(model(norm=wrong), x_of(4, 5))
    assert report.status == "FAIL"
    assert report.culprit.startswith("layers.1.inner.layers.0 (LayerNorm)")
    assert report.culprit_report.array("x").status == "FAIL"
    assert report.culprit in str(report)
    # What lies after it in backward is wrong too, but not to blame.
    assert report.array("layers[0].W").status == "FAIL"
    assert report.array("layers[3].W").status == "PASS"


def test_wrong_wiring_is_told_from_wrong_parts():
    lost = broken(Residual, backward=lambda self, dy: self.inner.backward(dy))
    chain = model()
    chain.layers[1] = lost(Chain(LayerNorm(6), Linear(6, 6)))
    report = gradcheck(chain, x_of(4, 5))
    assert report.culprit.startswith("layers.1 (Residual)")
    assert "puts them together" in report.culprit
    alone = gradcheck(lost(LayerNorm(6)), x_of(4, 6))
    assert alone.culprit.startswith("Residual")
    assert "puts them together" in alone.culprit


def test_recording_leaves_no_trace():
    chain = model()
    chain.layers[0].backward = bad = lambda dy: np.zeros((4, 5))
    report = gradcheck(chain, x_of(4, 5))
    assert report.culprit.startswith("layers.0")
    assert vars(chain.layers[0])["backward"] is bad
    assert all("forward" not in vars(layer) for layer in chain.layers)


def test_a_broken_contract_of_a_part_is_traced_too():
    def backward(self, dy):
        return np.clip(Softmax.backward(self, dy), -1e3, 1e3) + (0 if np.abs(dy).max() < 3.2 else 1e-4)

    chain = Chain(Linear(5, 6), broken(Softmax, backward=backward)())
    report = gradcheck(chain, x_of(40, 5))
    assert report.status == "FAIL"
    assert report.culprit.startswith("layers.1 (Softmax)")
