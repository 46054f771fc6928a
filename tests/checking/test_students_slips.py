"""Slips of people who write their first layers, none of them in the museum: what the checker says of each."""

import numpy as np
import pytest
from sample_layers import Chain, Linear, broken, x_of

import transformer_np as tnp
from transformer_np.checking import gradcheck


class TiedMLP:
    """y = tanh(x W) Wᵀ; the second gradient of W replaces the first."""

    def __init__(self):
        self.W = np.random.default_rng(0).normal(size=(5, 6))

    def forward(self, x):
        self.x, self.h = x, np.tanh(x @ self.W)
        return self.h @ self.W.T

    def backward(self, dy):
        self.dW = dy.T @ self.h
        da = dy @ self.W * (1 - self.h**2)
        self.dW = self.x.T @ da
        return da @ self.W.T


def test_a_second_gradient_that_replaces_the_first_is_seen_for_certain():
    report = gradcheck(TiedMLP(), x_of(3, 5))
    (said,) = report.array("W").diagnoses
    assert (said.kind, said.certainty) == ("missing path", "certain")
    assert "2 times, and only the last is left" in said.where
    assert "+=" in said.fix
    assert not hasattr(TiedMLP, "__setattr__") or "__setattr__" not in vars(TiedMLP)  # nothing of the listening stays


def test_a_class_with_a_setattr_of_its_own_keeps_it():
    def set_and_count(self, name, value):
        vars(self)["count"] = vars(self).get("count", 0) + 1
        vars(self)[name] = value

    cls = broken(TiedMLP, __setattr__=set_and_count)
    report = gradcheck(cls(), x_of(3, 5))
    assert report.array("W").diagnoses[0].certainty == "certain"
    assert vars(cls)["__setattr__"] is set_and_count


def test_a_gradient_stored_once_is_not_called_replaced():
    report = gradcheck(broken(Linear, backward=half_the_bias)(), x_of(3, 5))
    assert "only the last" not in str(report)


def half_the_bias(self, dy):
    dx = Linear.backward(self, dy)
    self.db = self.db / 2
    self.dW = np.random.default_rng(0).normal(size=self.W.shape)
    return dx


class Positions:
    """x plus the first rows of a table; backward fills the rows from 1 on."""

    def __init__(self, max_len):
        self.table = np.random.default_rng(0).normal(size=(max_len, 4))

    def forward(self, x):
        return x + self.table[: x.shape[1]]

    def backward(self, dy):
        self.dtable = np.zeros_like(self.table)
        self.dtable[1 : dy.shape[1] + 1] = dy.sum(0)
        return dy.copy()


@pytest.mark.parametrize(("max_len", "words"), [(8, "shifted round along axis 0"), (20, "1 place too late along ax")])
def test_rows_one_too_far_are_called_that(max_len, words):
    said = gradcheck(Positions(max_len), x_of(2, 5, 4)).array("table").diagnoses[0]
    assert said.certainty == "likely"
    assert words in said.shape_of_error
    assert said.line == "look for an offset that only one of forward and backward has"


class Shift:
    """y_t = x_t + a x_{t-1}; backward shifts the same way as forward. Its right gradient does not depend on x."""

    def __init__(self):
        self.a = np.random.default_rng(0).normal(size=4)

    def forward(self, x):
        self.before = np.zeros_like(x)
        self.before[:, 1:] = x[:, :-1]
        return x + self.a * self.before

    def backward(self, dy):
        self.da = (dy * self.before).sum((0, 1))
        dx = dy.copy()
        dx[:, 1:] += self.a * dy[:, :-1]
        return dx


def test_a_gradient_that_never_depends_on_the_input_is_not_called_stale():
    said = gradcheck(Shift(), x_of(2, 5, 4)).array("x").diagnoses
    assert "stale" not in {d.kind for d in said}


def test_one_that_reads_an_old_input_still_is():
    def forward(self, x):
        if not hasattr(self, "x"):
            self.x = x.copy()
        return np.sin(x)

    report = gradcheck(broken(Linear, forward=forward, backward=lambda self, dy: dy * np.cos(self.x))(), x_of(3, 5))
    assert report.status == "FAIL"
    assert "stale" in {d.kind for d in report.array("x").diagnoses}


def rms_forward(x):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5), x


def rms_backward(dy, x):
    rms = np.sqrt((x**2).mean(-1, keepdims=True)) + 1e-5  # eps outside of the root
    y = x / rms
    return (dy - y * (dy * y).mean(-1, keepdims=True)) / rms


def test_a_small_error_gets_a_hint_and_enough_digits():
    report = gradcheck((rms_forward, rms_backward), x_of(3, 5))
    (said,) = report.array("x").diagnoses
    assert said.kind == "unknown"
    assert "an eps that stands elsewhere" in said.line
    assert "too coarse to see so small an error" in str(report)
    yours, right = said.where.split("yours ")[1].split(", right ")
    assert yours != right


def test_a_gradient_rounded_to_float32_on_the_way_is_told_from_one_that_is_float32():
    def backward(self, dy):
        dx = Linear.backward(self, dy)
        self.dW = self.dW.astype("float32")
        return dx

    def backward_and_back(self, dy):
        dx = backward(self, dy)
        self.dW = self.dW.astype("float64")
        return dx

    honest = gradcheck(broken(Linear, backward=backward)(), x_of(3, 5))
    assert honest.ok, honest
    assert any("gradient of W is float32" in warning for warning in honest.warnings)
    hidden = gradcheck(broken(Linear, backward=backward_and_back)(), x_of(3, 5))
    assert hidden.status == "FAIL"
    assert "float32 leaves as much" in hidden.array("W").diagnoses[0].line


def test_what_is_wrong_with_a_part_is_told_with_the_whole():
    def backward(self, dy):
        return -Linear.backward(self, dy)

    report = gradcheck(Chain(Linear(5, 4), broken(Linear, backward=backward)(4, 3)), x_of(3, 5))
    assert report.culprit.startswith("layers.1")
    assert [d.kind for d in report.diagnoses] == ["sign"]
    assert "the opposite sign" in str(report)
    assert "gradient of x (3, 4)" in report.plot().get_suptitle()
    assert "gradient of x (3, 5)" in report.plot("x").get_suptitle()


def test_an_error_inside_numpy_names_the_line_that_called_it():
    def backward(self, dy):
        return np.einsum("ij,jk->ik", dy, self.W.T[None])

    report = gradcheck(broken(Linear, backward=backward)(), x_of(3, 5))
    assert report.status == "ERROR"
    assert "test_students_slips.py" in report.message


def test_an_error_inside_a_layer_of_this_package_does_so_too():
    class TwiceBackward:
        def __init__(self):
            self.inner = tnp.layers.LayerNorm(4, dtype="float64")

        def forward(self, x):
            return self.inner.forward(x)

        def backward(self, dy):
            return self.inner.backward(dy) + self.inner.backward(dy)

    report = gradcheck(TwiceBackward(), x_of(3, 4))
    assert report.status == "ERROR"
    assert "call forward first" in report.message
    assert "test_students_slips.py" in report.message


def test_running_statistics_are_named_among_the_reasons():
    def forward(self, x):
        self.b = 0.9 * self.b + 0.1 * x.mean()
        return x @ self.W + self.b

    report = gradcheck(broken(Linear, forward=forward)(), x_of(3, 5))
    assert report.status == "NONDETERMINISTIC"
    assert "running statistics" in report.message


@pytest.mark.parametrize(("n", "words"), [(1, "the gradient of W is wrong"), (2, "the gradients of W, b are wrong")])
def test_one_is_and_two_are(n, words):
    def backward(self, dy):
        dx = Linear.backward(self, dy)
        self.dW[0, 0] += 1
        self.db[0] += n - 1
        return dx

    assert gradcheck(broken(Linear, backward=backward)(), x_of(3, 5)).message == words


class Scaled:
    def __init__(self):
        self.gamma, self.table = np.arange(1.0, 5.0), np.full(4, 7.0)

    def forward(self, x):
        self.x = x
        return x * self.gamma


def test_what_is_not_written_yet_is_called_that():
    class Stub(Scaled):
        def backward(self, dy):
            self.dgamma = ...
            return dy * self.gamma

    class Returns(Scaled):
        def backward(self, dy):
            return ...

    report = gradcheck(Stub(), x_of(3, 4))
    assert (report.status, report.message) == ("ERROR", "backward is not finished, still `...`: dgamma")
    report = gradcheck(Returns(), x_of(3, 4))
    assert (report.status, report.message) == ("ERROR", "backward is not finished, still `...`: the gradient of x")
    report = gradcheck((lambda x, y: (x * y, None), lambda dy, cache: (dy, ...)), x_of(3, 4), x_of(3, 4))
    assert report.message == "backward is not finished, still `...`: the gradient of y"


def test_a_parameter_without_a_gradient_is_asked_about():
    class Forgets(Scaled):
        def backward(self, dy):
            return dy * self.gamma

    class Remembers(Scaled):
        def backward(self, dy):
            self.dgamma = (dy * self.x).sum(0)
            return dy * self.gamma

    layer = Forgets()
    report = gradcheck(layer, x_of(3, 4))
    assert report.ok  # it may be a constant
    assert [w for w in report.warnings if "the output depends on gamma" in w]
    assert not [w for w in report.warnings if "table" in w]
    np.testing.assert_array_equal(layer.gamma, np.arange(1.0, 5.0))
    assert not gradcheck(Remembers(), x_of(3, 4)).warnings
    # Where the caller says that it is a parameter, there is no doubt.
    report = gradcheck(Forgets(), x_of(3, 4), parameters={"gamma": "dgamma"})
    assert report.message == "the gradient of gamma is wrong"


class Dense:
    """The manner of many tutorials: backward also learns."""

    def __init__(self):
        self.weights = np.random.default_rng(0).normal(size=(3, 5))

    def forward(self, x):
        self.x = x
        return self.weights @ x

    def backward(self, dy, learning_rate):
        dx = self.weights.T @ dy
        self.weights -= learning_rate * dy @ self.x.T
        return dx


def test_a_backward_that_learns():
    class WithDefault(Dense):
        def backward(self, dy, learning_rate=0.1):
            return super().backward(dy, learning_rate)

    class Rebinds(Dense):
        def backward(self, dy):
            dx = self.weights.T @ dy
            self.weights = self.weights - 0.1 * dy @ self.x.T
            return dx

    report = gradcheck(Dense(), x_of(5, 2))
    assert report.status == "ERROR"
    assert report.message.startswith("backward(dy, learning_rate) is called with the upstream gradient alone")
    for layer in (WithDefault(), Rebinds()):
        kept = layer.weights.copy()
        report = gradcheck(layer, x_of(5, 2))
        assert report.status == "MUTATED"
        assert report.message.startswith("backward changes what forward reads (weights)")
        np.testing.assert_array_equal(layer.weights, kept)


def test_parameters_in_objects_with_value_and_gradient():
    class Weight:
        def __init__(self, value):
            self.value, self.gradient = value, np.zeros(value.shape)

    class Gain:
        def __init__(self, factor):
            self.w, self.factor = Weight(np.arange(1.0, 5.0)), factor

        def forward(self, x):
            self.x = x
            return x * self.w.value

        def backward(self, dy):
            self.w.gradient = self.factor * (dy * self.x).sum(0)
            return dy * self.w.value

    assert gradcheck(Gain(1), x_of(3, 4)).ok
    assert gradcheck(Gain(2), x_of(3, 4)).message == "the gradient of w is wrong"


def test_a_forward_without_return():
    report = gradcheck(broken(Linear, forward=lambda self, x: None)(), x_of(3, 5))
    assert report.status == "ERROR"
    assert "is its `return` missing?" in report.message


def test_a_cache_that_keeps_the_first_input_is_called_stale():
    class Growing:
        def __init__(self):
            self.cache = []

        def forward(self, x):
            self.cache.append(x)
            return x**2

        def backward(self, dy):
            return 2 * self.cache[0] * dy

    report = gradcheck(Growing(), x_of(3, 5))
    assert report.array("x").note == "right at the first point, wrong at a second one"
    assert report.array("x").diagnoses[0].kind == "stale"
    assert "it is too coarse" not in str(report)  # the Taylor rate is that of the second point
