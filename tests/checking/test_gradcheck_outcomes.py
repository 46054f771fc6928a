"""Each outcome, reached by the thing it is named for. The pool of real mistakes is named where it belongs."""

import numpy as np
import pytest
from sample_layers import (
    Chain,
    CrossEntropy,
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    Max,
    ReLU,
    Residual,
    Scale,
    Softmax,
    broken,
    x_of,
)

from transformer_np.checking import OUTCOMES, gradcheck

IDS = np.array([[1, 1, 4], [0, 4, 6]])


@pytest.mark.parametrize(
    ("layer", "inputs"),
    [
        (Linear(), [x_of(3, 5)]),
        (Linear(), [x_of(2, 3, 5)]),
        (LayerNorm(), [x_of(2, 3, 6)]),
        (Softmax(), [x_of(4, 6)]),
        (ReLU(), [x_of(4, 6)]),
        (Max(), [x_of(4, 6)]),
        (Embedding(), [IDS]),
        (Scale(), [x_of(3, 6)]),
        (CrossEntropy(), [x_of(4, 5), np.array([0, 3, 3, 1])]),
        (Chain(Linear(5, 6), LayerNorm(6), ReLU(), Linear(6, 3)), [x_of(4, 5)]),
        (Residual(LayerNorm()), [x_of(4, 6)]),
    ],
)
def test_right_layers_pass(layer, inputs):
    report = gradcheck(layer, *inputs)
    assert report.ok, report
    assert report.status == "PASS"
    assert report.status in OUTCOMES


def test_everything_is_put_back_bit_for_bit():
    layer = LayerNorm()
    gamma, beta, x = layer.gamma, layer.beta, x_of(3, 6)
    kept = x.copy()
    gradcheck(layer, x)
    assert layer.gamma is gamma
    assert layer.beta is beta
    np.testing.assert_array_equal(gamma, np.ones(6))
    np.testing.assert_array_equal(beta, np.zeros(6))
    np.testing.assert_array_equal(x, kept)
    layer32 = Scale()
    layer32.s.data = data = layer32.s.data.astype("float32")
    layer32.s.grad = grad = np.full(6, 7, "float32")
    assert gradcheck(layer32, x.astype("float32")).ok
    assert layer32.s.data is data
    assert layer32.s.grad is grad
    assert (grad == 7).all()


def test_a_wrong_gradient_names_array_index_values_and_error_bar():
    def backward(self, dy):
        dx = Linear.backward(self, dy)
        self.dW[2, 3] += 0.5
        return dx

    layer = broken(Linear, backward=backward)()
    report = gradcheck(layer, x_of(3, 5))
    assert report.status == "FAIL"
    assert [a.name for a in report.arrays if a.status != "PASS"] == ["W"]
    (entry,) = report.array("W").entries
    assert entry.index == (2, 3)
    assert entry.analytic - entry.numeric == pytest.approx(0.5, abs=1e-8)
    assert 0 < entry.bar < 1e-6
    assert report.array("W").n_wrong == 1
    assert "W[2, 3]" in str(report)


@pytest.mark.parametrize("relative", [1e-2, 1e-4, 1e-5])
def test_small_errors_are_seen(relative):
    layer = broken(LayerNorm, backward=lambda self, dy: LayerNorm.backward(self, dy) * (1 + relative))()
    assert gradcheck(layer, x_of(3, 6)).status == "FAIL"


def test_bp_20_a_vacuous_check_is_no_pass():
    zero = broken(Softmax, backward=lambda self, dy: np.zeros_like(dy))()
    x = x_of(4, 6)
    report = gradcheck(zero, x, upstream=np.ones((4, 6)))
    assert report.status == "VACUOUS"
    assert "upstream" in str(report)
    assert gradcheck(zero, x).status == "FAIL"
    assert gradcheck(Softmax(), x, upstream=np.ones((4, 6))).status == "VACUOUS"
    # With gamma = 1 the same holds for LayerNorm, though gamma and beta are tested there.
    report = gradcheck(LayerNorm(), x, upstream=np.ones((4, 6)), randomize=False)
    assert report.array("x").status == "VACUOUS"


def test_bp_20_a_power_of_zero_tests_nothing():
    power = (lambda x, n: (x**n, (x, n)), lambda dy, cache: np.zeros_like(dy))
    assert gradcheck(power, x_of(3, 4), 0).status == "VACUOUS"


@pytest.mark.parametrize(("size", "dtype"), [(1.0, "float16"), (1e-3, "float32")])
def test_bp_60_a_step_lost_to_rounding_is_enlarged(size, dtype):
    class Half(Linear):  # computes in less than float64 without saying so
        def forward(self, x):
            self.x = x
            return (x.astype(dtype) @ self.W.astype(dtype) + self.b.astype(dtype)).astype("float64")

    report = gradcheck(Half(), x_of(3, 5))
    assert report.ok, report
    assert "smaller mistakes than the witnesses tell stay unseen" in str(report)
    wrong = broken(Half, backward=lambda self, dy: Linear.backward(self, dy) * (1 + size))()
    assert gradcheck(wrong, x_of(3, 5)).status == "FAIL"


def test_bp_60_the_step_is_never_zero_and_never_below_an_ulp():
    # w = 0 everywhere: h proportional to w would be 0. The gradient of mean(x + w) is 1/1024 each.
    mean = (
        lambda x, w: ((x + w).mean(), x.shape),
        lambda dy, shape: (np.full(shape, dy / 1024), np.full(shape, dy / 1024)),
    )
    report = gradcheck(mean, x_of(1024), np.zeros(1024), randomize=False)
    assert report.array("w").status == "PASS"
    analytic, numeric, bar = report.array("w").slopes[0]
    assert abs(analytic - numeric) <= bar < 1e-6
    assert gradcheck(Linear(), 1e9 * x_of(3, 5)).ok  # an absolute step of 1e-6 would be below one ulp
    assert gradcheck(Linear(), 1e-9 * x_of(3, 5)).ok


def test_bp_61_a_kink_is_a_kink_with_its_index():
    x = x_of(3, 4)
    x[1, 2] = 0.0
    for slope_at_zero in (0.0, 1.0):
        layer = broken(
            ReLU, backward=lambda self, dy, s=slope_at_zero: dy * np.where(x == 0, s, self.on), forward=ReLU.forward
        )()
        report = gradcheck(layer, x, contracts=False, points=1)
        assert report.status == "KINK", report
        assert "[1, 2]" in str(report)
        assert not report.ok


def test_bp_61_ties_of_a_maximum():
    x = np.array([[0.977, 0.977, 0.1], [0.2, 0.9, 0.3]])
    report = gradcheck(Max(), x)
    assert report.status == "KINK"
    assert {e.index for e in report.array("x").entries} == {(0, 0), (0, 1)}


def test_bp_61_a_wrong_entry_beside_a_kink_still_fails():
    x = x_of(3, 4)
    x[1, 2] = 0.0
    x[0, 0] = 1.0
    layer = broken(ReLU, backward=lambda self, dy: dy * self.on * np.where(x == 1, 1.01, 1))()
    report = gradcheck(layer, x, contracts=False, points=1)
    assert report.status == "FAIL"
    assert any(e.index == (0, 0) and e.verdict == "wrong" for e in report.array("x").entries)


def test_bp_62_dropout_is_nondeterministic_until_its_mask_is_frozen():
    layer, x = Dropout(), x_of(4, 6)
    report = gradcheck(layer, x)
    assert report.status == "NONDETERMINISTIC"
    assert "replay=True" in str(report)
    assert not report.arrays  # said before any comparison
    assert gradcheck(layer, x, replay=True).ok

    def reseed():
        layer.rng = np.random.default_rng(3)

    assert gradcheck(layer, x, reseed=reseed).ok
    unscaled = broken(Dropout, backward=lambda self, dy: dy * (self.mask > 0))()
    assert gradcheck(unscaled, x, replay=True).status == "FAIL"


def test_bp_62_numpys_global_random_numbers_can_be_frozen_too():
    class Global(Dropout):
        def forward(self, x):
            self.mask = (np.random.random(x.shape) >= 0.5) * 2.0  # noqa: NPY002  what strangers write
            return x * self.mask

    assert gradcheck(Global(), x_of(4, 6)).status == "NONDETERMINISTIC"
    assert gradcheck(Global(), x_of(4, 6), replay=True).ok


def test_bp_70_a_transposed_or_strided_weight_is_really_disturbed():
    layer = Linear()
    layer.W = x_of(4, 5).T  # not contiguous: writing to ravel() would change a copy
    assert not layer.W.flags.c_contiguous
    report = gradcheck(layer, x_of(3, 5))
    assert report.ok, report
    assert report.array("W").tested
    layer.W = x_of(10, 8)[::2, ::2]
    assert gradcheck(layer, x_of(3, 10)[:, ::2]).ok
    layer.backward = lambda dy: np.zeros((3, 5))  # an instance may be patched
    assert gradcheck(layer, x_of(3, 10)[:, ::2]).status == "FAIL"


def test_bp_81_forgetting_gamma_is_caught_although_gamma_starts_at_one():
    def backward(self, dy):
        dx = LayerNorm.backward(self, dy)
        return dx if (self.gamma == 1).all() else LayerNorm.backward(_at_one(self), dy)

    def _at_one(layer):
        other = LayerNorm(len(layer.gamma))
        other.xhat, other.scale = layer.xhat, layer.scale
        return other

    forgetful = broken(LayerNorm, backward=backward)()
    report = gradcheck(forgetful, x_of(3, 6))
    assert report.status == "FAIL"
    assert "gamma" in str(report)
    weak = gradcheck(forgetful, x_of(3, 6), randomize=False, points=1)
    assert weak.status == "VACUOUS"
    assert "all ones" in str(weak)


def test_nonfinite_is_traced_to_the_layer_it_first_appears_in():
    class Log:
        def forward(self, x):
            return np.log(x)

        def backward(self, dy):
            return dy

    x = x_of(4, 5)
    report = gradcheck(Chain(Linear(5, 5), Log(), Linear(5, 5)), x)
    assert report.status == "NONFINITE"
    assert "layers.1 (Log)" in str(report)
    bad = broken(Linear, backward=lambda self, dy: Linear.backward(self, dy) * np.nan)()
    assert gradcheck(bad, x).status == "NONFINITE"


@pytest.mark.parametrize(
    "change",
    [
        lambda self, dx: dx[0],
        lambda self, dx: dx.T,
        lambda self, dx: (dx, dx),
        lambda self, dx: None,
        lambda self, dx: 3,
    ],
)
def test_shapes_and_numbers_of_gradients(change):
    layer = broken(Linear, backward=lambda self, dy: change(self, Linear.backward(self, dy)))()
    report = gradcheck(layer, x_of(3, 5))
    assert report.status in ("SHAPE", "FAIL"), report
    if change(None, np.zeros((3, 5))) is not None:
        assert report.status == "SHAPE"


def test_a_bias_gradient_that_was_not_summed_is_a_shape_error():
    def backward(self, dy):
        dx = Linear.backward(self, dy)
        self.db = dy
        return dx

    report = gradcheck(broken(Linear, backward=backward)(), x_of(4, 5))
    assert report.status == "SHAPE"
    assert "(4,)" in str(report)


def test_mutation_of_input_upstream_output_and_parameter():
    def shift(self, x):
        x -= x.max(-1, keepdims=True)
        return Softmax.forward(self, x)

    def scale_dy(self, dy):
        dy *= self.on
        return dy

    def spoil(self, x):
        self.W += 1
        return Linear.forward(self, x)

    for layer, what in (
        (broken(Softmax, forward=shift)(), "input x"),
        (broken(ReLU, backward=scale_dy)(), "dy"),
        (broken(Linear, forward=spoil)(), "W"),
    ):
        report = gradcheck(layer, x_of(3, 5))
        # A weight that changes with every forward shows first as two different outputs.
        assert report.status == "MUTATED" or (what == "W" and report.status == "NONDETERMINISTIC")
        assert what in str(report) or what == "W"


def test_errors_of_the_subject_are_an_outcome_with_their_place():
    def forward(self, x):
        raise KeyError("lost")

    report = gradcheck(broken(Linear, forward=forward)(), x_of(3, 5))
    assert report.status == "ERROR"
    assert "KeyError" in str(report)
    assert "test_gradcheck_outcomes.py" in str(report)
    assert gradcheck(broken(Linear, forward=lambda self, x: None)(), x_of(3, 5)).status == "ERROR"


def test_vacuous_points():
    assert gradcheck(Linear(), np.zeros((3, 5))).status == "VACUOUS"  # dW is zero whatever backward does
    assert gradcheck(Softmax(), x_of(4, 1)).status == "VACUOUS"  # the softmax of one number is 1
    assert gradcheck(ReLU(), -np.abs(x_of(4, 3))).status == "VACUOUS"
    report = gradcheck(Softmax(), np.arange(12).reshape(3, 4))  # integers are not differentiated
    assert report.status == "VACUOUS"
    assert "int64" in str(report)
    assert "batch of length 1" in str(gradcheck(Linear(), x_of(1, 5)))
    assert "square" in str(gradcheck(Linear(5, 5), x_of(3, 5)))


def test_a_key_bias_that_never_matters_passes():
    class Attend:
        def __init__(self):
            self.bias, self.dbias = x_of(4, seed=3), None

        def forward(self, q, k):
            self.q, self.k = q, k + self.bias
            s = q @ self.k.T
            p = np.exp(s - s.max(-1, keepdims=True))
            self.p = p / p.sum(-1, keepdims=True)
            return self.p.copy()

        def backward(self, dy):
            ds = self.p * (dy - (dy * self.p).sum(-1, keepdims=True))
            dk = ds.T @ self.q
            self.dbias = dk.sum(0)
            return ds @ self.k, dk

    report = gradcheck(Attend(), x_of(3, 4), x_of(5, 4, seed=1))
    assert report.ok, report
    assert "does not depend on it" in report.array("bias").note
    assert gradcheck(Attend(), x_of(3, 4), x_of(1, 4, seed=1)).status == "VACUOUS"  # one key: nothing to choose from


def test_float32_predicts_its_floor_and_never_fails_by_rounding():
    for seed in range(5):
        report = gradcheck(LayerNorm(), x_of(3, 6, seed=seed), dtype="float32")
        assert report.ok, report
        assert "smaller mistakes than the witnesses tell stay unseen" in str(report)
    wrong = broken(LayerNorm, backward=lambda self, dy: LayerNorm.backward(self, dy) * np.float32(1.05))()
    assert gradcheck(wrong, x_of(3, 6), dtype="float32").status == "FAIL"


def test_bad_calls_are_refused_with_words():
    with pytest.raises(TypeError, match="an object with forward and backward"):
        gradcheck(3, x_of(2, 2))
    with pytest.raises(TypeError, match="expected an instance"):
        gradcheck(Linear, x_of(3, 5))
    with pytest.raises(ValueError, match="upstream"):
        gradcheck(Linear(), x_of(3, 5), upstream=np.ones((3, 5)))
    with pytest.raises(ValueError, match="no float array named"):
        gradcheck(Linear(), x_of(3, 5), parameters={"V": "dV"})


def test_activations_and_random_generators_are_put_back_too():
    layer, x = Dropout(), x_of(4, 6)
    layer.forward(x)
    mask, state = layer.mask, layer.rng.bit_generator.state
    gradcheck(layer, x_of(2, 3))
    gradcheck(layer, x_of(2, 3), replay=True)
    assert layer.mask is mask
    assert layer.rng.bit_generator.state == state
    linear = Linear()
    gradcheck(linear, x_of(3, 5))
    assert set(vars(linear)) == {"W", "b"}


@pytest.mark.parametrize("in_place", [True, False])
def test_a_backward_that_already_takes_a_step_is_mutation(in_place):
    def backward(self, dy):
        dx = Linear.backward(self, dy)
        if in_place:
            self.W -= 0.1 * self.dW
        else:
            self.W = self.W - 0.1 * self.dW
        return dx

    layer = broken(Linear, backward=backward)()
    weight, values = layer.W, layer.W.copy()
    report = gradcheck(layer, x_of(3, 5))
    assert report.status == "MUTATED"
    assert "backward changes the parameter W" in str(report)
    assert layer.W is weight
    np.testing.assert_array_equal(weight, values)
