"""Whatever people write: attributes, dictionaries, lists, Parameter objects, function pairs, losses, nested states."""

import numpy as np
import pytest
from sample_layers import Chain, CrossEntropy, Linear, Parameter, Scale, Softmax, x_of

from transformer_np.checking import gradcheck


def affine_forward(x, w, b):
    return x @ w + b, (x, w)


def affine_backward(dout, cache):
    x, w = cache
    return dout @ w.T, x.T @ dout, dout.sum(0)


def names(report):
    return [a.name for a in report.arrays]


def wrong_arrays(report):
    return [a.name for a in report.arrays if a.status == "FAIL"]


def test_function_pairs_out_cache():
    report = gradcheck((affine_forward, affine_backward), x_of(3, 5), x_of(5, 4), x_of(4))
    assert report.ok, report
    assert names(report) == ["x", "w", "b"]

    def forgets_db(dout, cache):
        dx, dw, db = affine_backward(dout, cache)
        return dx, dw, db * 0

    report = gradcheck((affine_forward, forgets_db), x_of(3, 5), x_of(5, 4), x_of(4))
    assert wrong_arrays(report) == ["b"]


@pytest.mark.parametrize(
    "backward",
    [
        lambda cache, dout: affine_backward(dout, cache),
        lambda dout, cache: dict(zip(("dx", "dw", "db"), affine_backward(dout, cache), strict=True)),
        lambda dout, cache: list(affine_backward(dout, cache)),
    ],
)
def test_other_manners_of_pairs(backward):
    assert gradcheck((affine_forward, backward), x_of(3, 5), x_of(5, 4), x_of(4)).ok


def test_pairs_without_a_cache():
    assert gradcheck((lambda x: np.tanh(x), lambda dy, x: dy * (1 - np.tanh(x) ** 2)), x_of(3, 4)).ok
    assert gradcheck((lambda x: 3 * x, lambda dy: 3 * dy), x_of(3, 4)).ok


def test_pairs_with_several_outputs():
    def forward(x):
        return np.sin(x), np.cos(x), x

    def backward(douts, x):
        ds, dc = douts
        return ds * np.cos(x) - dc * np.sin(x)

    assert gradcheck((forward, backward), x_of(3, 4)).ok
    assert gradcheck((forward, lambda douts, x: douts[0] * np.cos(x)), x_of(3, 4)).status == "FAIL"


def test_losses_in_three_manners():
    logits, targets = x_of(4, 5), np.array([0, 3, 3, 1])

    def loss(x, y):
        layer = CrossEntropy()
        return layer.forward(x, y), layer.backward()

    pair = (lambda x, y: (lambda l: (l.forward(x, y), l))(CrossEntropy()), lambda cache: cache.backward())
    scaled = (pair[0], lambda dloss, cache: dloss * cache.backward())
    for subject in (CrossEntropy(), loss, pair, scaled):
        assert gradcheck(subject, logits, targets).ok
    report = gradcheck(lambda x, y: (loss(x, y)[0], 4 * loss(x, y)[1]), logits, targets)
    assert report.status == "FAIL"


class Dictionaries:
    def __init__(self, prefix=""):
        self.params = {"W": x_of(5, 4), "b": x_of(4, seed=1)}
        self.grads = {}
        self.prefix = prefix

    def forward(self, x):
        self.x = x
        return x @ self.params["W"] + self.params["b"]

    def backward(self, dout):
        self.grads = {self.prefix + "W": self.x.T @ dout, self.prefix + "b": dout.sum(0)}
        return dout @ self.params["W"].T


class Lists:
    def __init__(self):
        self.params = [x_of(5, 4), x_of(4, seed=1)]
        self.grads = [np.zeros((5, 4)), np.zeros(4)]

    def forward(self, x):
        self.x = x
        return x @ self.params[0] + self.params[1]

    def backward(self, dout):
        self.grads[0][...] = self.x.T @ dout
        self.grads[1][...] = dout.sum(0)
        return dout @ self.params[0].T


class Methods(Scale):
    def named_parameters(self):
        yield "the.scale", self.s


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (Dictionaries(), ["x", "W", "b"]),
        (Dictionaries("d"), ["x", "W", "b"]),
        (Lists(), ["x", "params[0]", "params[1]"]),
        (Linear(), ["x", "W", "b"]),
    ],
)
def test_where_parameters_live(layer, expected):
    report = gradcheck(layer, x_of(3, 5))
    assert report.ok, report
    assert names(report) == expected


def test_parameters_that_the_object_names_itself():
    assert names(gradcheck(Methods(), x_of(3, 6))) == ["x", "the.scale"]


def test_parameters_in_sub_layers_and_a_name_given_by_hand():
    report = gradcheck(Chain(Linear(5, 6), Scale(6), Linear(6, 2)), x_of(3, 5))
    assert names(report) == ["x", "layers[0].W", "layers[0].b", "layers[1].s", "layers[2].W", "layers[2].b"]

    class Odd(Linear):
        def backward(self, dy):
            dx = Linear.backward(self, dy)
            self.slope_of_W = self.dW * 2
            return dx

    layer = Odd()
    assert gradcheck(layer, x_of(3, 5)).ok
    report = gradcheck(layer, x_of(3, 5), parameters={"W": "slope_of_W"})
    assert wrong_arrays(report) == ["W"]


def test_caches_are_not_taken_for_parameters():
    class Keeps(Softmax):
        def forward(self, x):
            self.x = x
            return Softmax.forward(self, x)

        def backward(self, dy):
            self.dx = Softmax.backward(self, dy)
            return self.dx

    report = gradcheck(Keeps(), x_of(3, 4))
    assert names(report) == ["x"]
    assert report.ok


@pytest.mark.parametrize("drop_a_path", [False, True])
def test_a_tied_array_is_one_parameter_whose_paths_add_up(drop_a_path):
    class Tied:
        """y = tanh(x E) E^T with one E, as a language model ties its embeddings."""

        def __init__(self):
            self.first, self.second = Parameter(x_of(4, 3)), None
            self.second = Parameter(self.first.data)

        def forward(self, x):
            self.x = x
            self.h = np.tanh(x @ self.first.data)
            return self.h @ self.second.data.T

        def backward(self, dy):
            dh = dy @ self.second.data * (1 - self.h**2)
            if not drop_a_path:
                self.second.grad += dy.T @ self.h
            self.first.grad += self.x.T @ dh
            return dh @ self.first.data.T

    report = gradcheck(Tied(), x_of(5, 4))
    assert names(report) == ["x", "first"]
    assert report.ok is not drop_a_path, report


def test_nested_inputs_and_outputs():
    class Cell:
        """h' = tanh(x + h), c' = c h', in the manner y, (h', c')."""

        def forward(self, x, state):
            h, c = state
            self.h, self.c = np.tanh(x + h), c
            return self.h.copy(), (self.h.copy(), c * self.h)

        def backward(self, dy, dstate):
            dh, dc = dstate
            d = (dy + dh + dc * self.c) * (1 - self.h**2)
            return d, (d.copy(), dc * self.h)

    report = gradcheck(Cell(), x_of(2, 3), (x_of(2, 3, seed=1), x_of(2, 3, seed=2)))
    assert report.ok, report
    assert names(report) == ["x", "state[0]", "state[1]"]


def test_keywords_go_to_forward():
    class Masked(Softmax):
        def forward(self, x, mask=None, *, temperature=1.0, seed=None):
            self.t = temperature
            return Softmax.forward(self, np.where(mask, x / temperature, -1e30))

        def backward(self, dy):
            return Softmax.backward(self, dy) / self.t

    mask = np.array([True, True, False, True])
    report = gradcheck(Masked(), x_of(3, 4), mask=mask, temperature=2.0, keywords={"seed": 5})
    assert report.ok, report


def test_an_object_that_is_only_callable():
    class Call:
        def __call__(self, x):
            self.x = x
            return x**2

        def backward(self, dy):
            return 2 * self.x * dy

    assert gradcheck(Call(), x_of(3, 4)).ok


def test_works_on_an_array_library_of_another_name():
    """A stand-in for CuPy: arrays that refuse to become NumPy ones behind one's back."""
    import sys
    import types

    class Device(np.ndarray):
        def __array__(self, *args, **kwargs):
            raise TypeError("implicit conversion")

        def get(self):
            return self.view(np.ndarray)

    module = types.ModuleType("cupy")
    module.ndarray = Device
    wrap = {
        name: getattr(np, name)
        for name in ("abs", "sqrt", "where", "maximum", "minimum", "isfinite", "may_share_memory")
    }
    for name, function in wrap.items():
        setattr(module, name, function)
    for name in (
        "zeros",
        "ones",
        "asarray",
        "zeros_like",
        "ones_like",
        "stack",
        "concatenate",
        "broadcast_to",
        "repeat",
        "full_like",
    ):
        function = getattr(np, name)
        setattr(module, name, lambda *a, _f=function, **k: _f(*[_bare(x) for x in a], **k).view(Device))

    def _bare(x):
        if isinstance(x, Device):
            return x.view(np.ndarray)
        return [_bare(y) for y in x] if isinstance(x, (list, tuple)) else x

    class Square:
        def forward(self, x):
            assert isinstance(x, Device)
            self.x = x
            return x * x

        def backward(self, dy):
            assert isinstance(dy, Device)
            return 2 * self.x * dy

    sys.modules["cupy"] = module
    try:
        report = gradcheck(Square(), x_of(3, 4).view(Device))
        assert report.ok, report
        wrong = Square()
        wrong.backward = lambda dy: 2.1 * wrong.x * dy
        assert gradcheck(wrong, x_of(3, 4).view(Device)).status == "FAIL"
    finally:
        del sys.modules["cupy"]
