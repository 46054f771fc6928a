"""Each contract, with a layer that keeps the numbers right and breaks just that one."""

import numpy as np
import pytest
from sample_layers import CausalMean, CrossEntropy, Embedding, LayerNorm, Linear, ReLU, Scale, Softmax, broken, x_of

from transformer_np.checking import gradcheck


def broken_contracts(report):
    return {finding.contract for finding in report.findings}


def test_output_that_is_a_view_of_the_input():
    class Flatten:
        def forward(self, x):
            self.shape = x.shape
            return x.reshape(len(x), -1)

        def backward(self, dy):
            return dy.reshape(self.shape)

    report = gradcheck(Flatten(), x_of(3, 2, 2))
    assert report.status == "FAIL"
    assert broken_contracts(report) == {"aliasing"}
    assert gradcheck(Flatten(), x_of(3, 2, 2), skip=("aliasing",)).ok
    assert gradcheck(Flatten(), x_of(3, 2, 2), contracts=False).ok


def test_integer_inputs_must_get_none():
    def backward(self, dy):
        Embedding.backward(self, dy)
        return np.zeros(self.ids.shape)

    ids = np.array([[1, 1, 4], [0, 4, 6]])
    report = gradcheck(broken(Embedding, backward=backward)(), ids)
    assert broken_contracts(report) == {"integers"}
    assert "must return None" in str(report)
    assert gradcheck(Embedding(), ids).ok


def test_gradients_of_the_float_inputs_alone_are_understood_with_a_gentle_word():
    class Gate:
        def forward(self, x, keep, y):
            self.x, self.keep, self.y = x, keep, y
            return np.where(keep, x * y, 0)

        def backward(self, dy):
            d = np.where(self.keep, dy, 0)
            return d * self.y, d * self.x

    keep = np.array([[True, False, True], [True, True, False]])
    report = gradcheck(Gate(), x_of(2, 3), keep, x_of(2, 3, seed=1))
    assert report.ok, report
    assert any("None for ids and masks" in note for note in report.notes)
    with_none = broken(Gate, backward=lambda self, dy: (lambda a, b: (a, None, b))(*Gate.backward(self, dy)))()
    report = gradcheck(with_none, x_of(2, 3), keep, x_of(2, 3, seed=1))
    assert report.ok
    assert not report.notes


def test_a_gradient_left_over_from_an_earlier_call():
    class Remembers(Linear):
        def forward(self, x):
            if not hasattr(self, "x"):  # from the first call, for good
                self.x = x
            return x @ self.W + self.b

    report = gradcheck(Remembers(), x_of(3, 5))
    assert report.status == "FAIL"
    assert report.array("W").status == "FAIL"

    class Adds(ReLU):
        def backward(self, dy):
            dx = dy * self.on + getattr(self, "left", 0)
            self.left = dx if getattr(self, "runs", 0) else 0
            self.runs = 1
            return dx

    assert gradcheck(Adds(), x_of(3, 4)).status == "FAIL"


def test_a_gradient_that_replaces_instead_of_adding():
    def backward(self, dy):
        self.s.grad = (dy * self.x).reshape(-1, self.s.data.size).sum(0)
        return dy * self.s.data

    report = gradcheck(broken(Scale, backward=backward)(), x_of(3, 6))
    assert broken_contracts(report) == {"accumulation"}
    assert "use +=" in str(report)
    assert gradcheck(Linear(), x_of(3, 5)).ok  # dW in an attribute is replaced by custom


def test_a_second_backward_must_repeat_or_refuse():
    class Spent(ReLU):
        def backward(self, dy):
            dx = dy * self.on
            self.on = np.zeros_like(self.on)
            return dx

    class Refuses(ReLU):
        def backward(self, dy):
            on, self.on = self.on, None
            if on is None:
                raise RuntimeError("call forward first")
            return dy * on

    assert broken_contracts(gradcheck(Spent(), x_of(3, 4))) == {"second backward"}
    assert gradcheck(Refuses(), x_of(3, 4)).ok


def test_bp_49_a_second_backward_that_triples():
    class Triples(Scale):
        def backward(self, dy):
            self.total = getattr(self, "total", 0) + (dy * self.x).sum(0)
            self.s.grad += self.total
            return dy * self.s.data

        def forward(self, x):
            self.total = 0
            return Scale.forward(self, x)

    assert "second backward" in broken_contracts(gradcheck(Triples(), x_of(3, 6)))


def test_backward_must_be_linear_in_dy():
    class Clips(ReLU):
        def backward(self, dy):
            return np.clip(dy * self.on, -3, 3)

    report = gradcheck(Clips(), x_of(5, 6))
    assert "linearity" in broken_contracts(report)


def test_zero_upstream_gives_zero():
    class Decays(Linear):  # weight decay mixed into the gradient
        def backward(self, dy):
            dx = Linear.backward(self, dy)
            self.dW += 1e-13 * self.W
            return dx

    assert broken_contracts(gradcheck(Decays(), x_of(3, 5))) == {"zero upstream"}


def test_inputs_that_are_not_contiguous():
    class Flat(ReLU):  # reads the memory, not the array
        def forward(self, x):
            x = np.ndarray(x.shape, x.dtype, x.base if x.base is not None and x.base.size >= x.size else x)
            return ReLU.forward(self, x.copy())

    report = gradcheck(Flat(), x_of(3, 4))
    assert "strided" in broken_contracts(report)


def test_inputs_that_repeat_one_row():
    class Writes(Softmax):  # works on its input where it may, which is no crime until the input is read-only
        def forward(self, x):
            kept = x.copy()
            x += 0
            y = Softmax.forward(self, kept)
            return y

    report = gradcheck(Writes(), x_of(3, 4))
    assert broken_contracts(report) == {"broadcast"}
    assert "read-only" in str(report)


def test_rows_of_a_batch_that_meet_in_backward_only():
    def backward(self, dy):
        return Softmax.backward(self, dy) + 1e-7 * (dy.mean(0) - dy)

    report = gradcheck(broken(Softmax, backward=backward)(), x_of(4, 6))
    assert "batch rows" in broken_contracts(report) or report.array("x").status == "FAIL"


def test_independent_rows_on_request():
    class Centre:
        def forward(self, x):
            return x - x.mean(0)

        def backward(self, dy):
            return dy - dy.mean(0)

    assert gradcheck(Centre(), x_of(4, 3)).ok
    assert broken_contracts(gradcheck(Centre(), x_of(4, 3), independent_rows=True)) == {"batch rows"}
    assert gradcheck(LayerNorm(), x_of(4, 6), independent_rows=True).ok


def test_causality_on_request():
    class Looks(CausalMean):
        def forward(self, x):
            self.m = np.ones((x.shape[-2],) * 2) / x.shape[-2]
            self.y = np.tanh(self.m @ x)
            return self.y.copy()

    assert gradcheck(CausalMean(), x_of(2, 5, 3), causal=True).ok
    assert gradcheck(Looks(), x_of(2, 5, 3)).ok
    report = gradcheck(Looks(), x_of(2, 5, 3), causal=True)
    assert broken_contracts(report) == {"causality"}
    assert "looks ahead" in str(report)


def test_padding_on_request():
    class Pool:
        def __init__(self, real, honest=True):
            self.real = real if honest else np.ones_like(real)

        def forward(self, x):
            self.w = self.real / self.real.sum(1, keepdims=True)
            return np.einsum("bs,bsd->bd", self.w, x)

        def backward(self, dy):
            return self.w[..., None] * dy[:, None, :]

    real = np.array([[True, True, False], [True, False, False]])
    assert gradcheck(Pool(real), x_of(2, 3, 4), padding=real).ok
    assert broken_contracts(gradcheck(Pool(real, False), x_of(2, 3, 4), padding=real)) == {"padding"}


@pytest.mark.parametrize("layer", [LayerNorm(), Linear(6, 3), Scale(), ReLU(), Softmax()])
def test_right_layers_keep_all_contracts(layer):
    report = gradcheck(layer, x_of(2, 3, 6))
    assert report.ok, report
    assert len(report.contracts) == 10


def test_a_loss_keeps_the_contracts_that_apply():
    assert gradcheck(CrossEntropy(), x_of(4, 5), np.array([0, 3, 3, 1])).ok
