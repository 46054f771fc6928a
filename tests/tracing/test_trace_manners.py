"""A trace leaves everything as it found it, and copes with what people do: errors, threads, their own classes."""

import linecache
import sys
import threading

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np import layers
from transformer_np.module import Module

X = np.random.default_rng(0).standard_normal((2, 3, 4))
FLOAT64 = {"dtype": "float64"}


def transformer(n_encoder_layers=1, **options):
    """A tiny model, and its inputs."""
    rng = np.random.default_rng(0)
    model = tnp.Transformer(9, 8, 8, 2, n_encoder_layers, 1, 16, max_len=8, **options)
    return model, rng.integers(1, 9, (2, 5)), rng.integers(1, 8, (2, 4))


class Scaled:
    """A stranger's layer: y = x * w, with arrays in attributes."""

    def __init__(self):
        self.w = np.array([2.0, 3.0])
        self.dw = np.array([5.0, 5.0])

    def forward(self, x):
        self.x = x
        out = x * self.w
        return out

    def backward(self, dout):
        self.dw = (dout * self.x).sum(0)
        dx = dout * self.w
        return dx


def test_a_debugger_or_coverage_goes_on():
    seen = []

    def other(frame, event, argument):
        seen.append(event)

    before = sys.gettrace()
    sys.settrace(other)
    try:
        tnp.trace(layers.ReLU())(X)
        assert sys.gettrace() is other
    finally:
        sys.settrace(before)


def test_an_error_in_the_model_passes_and_ends_the_trace():
    class Broken(layers.Linear):
        def backward(self, dy):
            super().backward(dy)
            raise ZeroDivisionError("by hand")

    layer = Broken(4, 5, seed=0, **FLOAT64)
    before, gradient = sys.gettrace(), layer.weight.grad
    with pytest.raises(ZeroDivisionError, match="by hand"):
        tnp.trace(layer)(X)
    assert sys.gettrace() is before
    assert layer.weight.grad is gradient
    assert not layer.weight.grad.any()


def test_wrong_inputs_are_the_models_own_error():
    model, src, tgt = transformer()
    with pytest.raises(IndexError, match="Transformer: src: id 99"):
        tnp.trace(model)(src * 0 + 99, tgt)
    with pytest.raises(ValueError, match="upstream gradient dy must have shape"):
        tnp.trace(layers.ReLU(), dy=X[0])(X)


def test_gradients_stay_as_they_were():
    model, src, tgt = transformer()
    model.backward(np.ones_like(model.forward(src, tgt)))
    kept = {name: (p.grad, p.grad.copy()) for name, p in model.named_parameters()}
    tnp.trace(model)(src, tgt)
    for name, p in model.named_parameters():
        assert p.grad is kept[name][0]
        assert np.array_equal(p.grad, kept[name][1])
    model.zero_grad()
    tnp.trace(model)(src, tgt)
    assert not any(p.has_grad for p in model.parameters())


def test_the_forward_is_used_up_and_the_mode_kept():
    model, src, tgt = transformer()
    for training in (True, False):
        trace = tnp.trace(model.train(training))(src, tgt)
        assert model.training is training
        with pytest.raises(RuntimeError, match="call forward first"):
            model.backward(trace.output)


def test_dropout_draws_as_if_there_were_no_trace():
    one, src, tgt = transformer()
    two = transformer()[0]
    tnp.trace(one)(src, tgt)
    two.forward(src, tgt)
    assert np.array_equal(one.forward(src, tgt), two.forward(src, tgt))


def test_inside_inference_there_is_no_backward():
    model, src, tgt = transformer()
    with tnp.inference():
        trace = tnp.trace(model)(src, tgt)
    assert trace.forward
    assert not trace.backward
    assert not any(g.any() for g in trace.gradients.values())


def test_without_a_trace_python_runs_as_ever():
    tnp.trace(layers.ReLU())(X)
    assert sys.gettrace() is None or "tracing" not in getattr(sys.gettrace(), "__module__", "")


def test_only_this_thread_is_watched():
    class Threaded(Module):
        def __init__(self):
            super().__init__(**FLOAT64)
            self.relu = layers.ReLU()

        def forward(self, x):
            thread = threading.Thread(target=self.relu.forward, args=(x,))
            thread.start()
            thread.join()
            return self.relu(-x)

        def backward(self, dy):
            return -self.relu.backward(dy)

    trace = tnp.trace(Threaded())(X)
    assert np.array_equal(trace["relu.x"], -X)
    assert "relu.x.2" not in trace


def test_a_strangers_class():
    layer, x = Scaled(), np.array([[1.0, -1.0], [4.0, 0.0]])
    before = layer.dw
    trace = tnp.trace(layer, dy=np.ones((2, 2)))(x)
    assert np.array_equal(trace["out"], [[2, -3], [8, 0]])
    assert np.array_equal(trace["dx"], [[2, 3], [2, 3]])
    assert np.array_equal(trace.gradients["w"], [5, -1])
    assert np.array_equal(trace["w.grad"], [5, -1])
    assert layer.dw is before
    assert trace.gradient_of(trace.step("x")).name == "dx"


SOURCE = """
class FromCell:
    def forward(self, x):
        hidden = (
            x
            * 2
        )
        if hidden.ndim: y = hidden + 1
        with open(os.devnull) as nothing:
            (total := y.sum())
        for i in range(2):
            y = y * 1
        return y

    def backward(self, dy):
        dhidden = dy
        try:
            raise ValueError
        except ValueError:
            dx = dhidden * 2
        return dx
"""


def made_from(source, name):
    """An object of the class FromCell, compiled under a file name."""
    import os

    names = {"os": os}
    exec(compile(source, name, "exec"), names)
    return names["FromCell"]()


def test_a_class_from_a_notebook_cell():
    name = "<cell 7>"
    linecache.cache[name] = (len(SOURCE), None, SOURCE.splitlines(keepends=True), name)
    trace = tnp.trace(made_from(SOURCE, name))(X)
    assert np.array_equal(trace["hidden"], 2 * X)
    assert np.array_equal(trace["y"], 2 * X + 1)
    assert [s.variable for s in trace.forward] == ["x", "hidden", "y", "total", "y", "y"]
    assert trace.step("hidden").source == "hidden = ( x * 2 )"
    assert trace.step("hidden").inputs == ("x",)
    assert np.array_equal(trace["dx"], 2 * trace["dy"])
    assert trace["dhidden"] is trace["dy"]  # the same array under a second name


def test_a_source_that_changed_after_it_was_read():
    name, changed = "<cell 8>", SOURCE.replace("        return y", "        y = y * 1\n        return y")
    linecache.cache[name] = (len(changed), None, changed.splitlines(keepends=True), name)
    trace = tnp.trace(made_from(SOURCE, name))(X)
    assert np.array_equal(trace["y"], 2 * X + 1)
    assert trace.step("dhidden").source == ""


def test_a_class_without_source():
    trace = tnp.trace(made_from(SOURCE, "<nowhere>"))(X)
    assert np.array_equal(trace["hidden"], 2 * X)
    assert np.array_equal(trace["y"], 2 * X + 1)
    assert np.array_equal(trace["dx"], 2 * trace["dy"])
    assert trace.step("hidden").source == ""


def test_a_method_put_in_from_outside():
    class Mine(layers.Linear):
        pass

    def forward(self, x):
        doubled = 2 * x
        return layers.Linear.forward(self, doubled)

    Mine.forward = forward
    trace = tnp.trace(Mine(4, 2, seed=0, **FLOAT64))(X)
    assert np.array_equal(trace["doubled"], 2 * X)
    assert trace["y"].shape == (2, 3, 2)


def test_a_layer_used_twice():
    class Twice(Module):
        def __init__(self):
            super().__init__(**FLOAT64)
            self.tanh = layers.Tanh()

        def forward(self, x):
            return self.tanh(self.tanh(x))

        def backward(self, dy):
            raise AssertionError("not in inference")

    with tnp.inference():
        trace = tnp.trace(Twice())(X)
    assert np.array_equal(trace["tanh.y.1"], np.tanh(X))
    assert np.array_equal(trace["tanh.y"], np.tanh(np.tanh(X)))
    assert trace["tanh.y.2"] is trace["tanh.y"]


def test_a_checkpoint_computes_again_in_backward():
    model, src, tgt = transformer(2, checkpoint=True)  # of all layers but the last
    plain = tnp.trace(transformer(2)[0])(src, tgt)
    trace = tnp.trace(model)(src, tgt)
    name = "encoder.layers.0.self_attention.attention.scores"
    assert [s.phase for s in trace.steps if s.name.startswith(name)] == ["forward", "backward"]
    assert trace[name].tobytes() == trace[f"{name}.2"].tobytes()
    for key, gradient in plain.gradients.items():
        if key in plain.parameters:
            assert np.array_equal(gradient, trace.gradients[key]), key


def test_several_outputs_and_a_sum_of_losses():
    rng = np.random.default_rng(0)
    model = tnp.BERT(9, 8, 2, 1, 16, max_len=8)
    ids = rng.integers(1, 9, (2, 5))
    loss_fn = tnp.SumOfLosses(tnp.CrossEntropy(ignore_index=-100), tnp.CrossEntropy())
    trace = tnp.trace(model, loss_fn, (ids, np.array([0, 1])))(ids)
    assert trace["logits[0]"].shape == (2, 5, 9)
    assert trace["dlogits[1]"].shape == (2, 2)
    assert trace.loss == pytest.approx(float(trace["loss.losses.0.loss"] + trace["loss.losses.1.loss"]))
    assert len(trace.output) == 2
    assert np.array_equal(tnp.trace(layers.RNN(4, 3, seed=0, **FLOAT64))(X)["dh"].shape, (2, 3))


def test_tokens_and_letters():
    model, src, tgt = transformer()
    trace = tnp.trace(model, tokens=(["a"] * 5, ["b"] * 4))(src, tgt)
    assert trace.tokens == {"src": ["a"] * 5, "tgt": ["b"] * 4}
    assert trace.letters[5] == "S"
    assert trace.letters[16] == "F"
    assert 2 not in trace.letters  # B and H


def test_names():
    model, src, tgt = transformer()
    trace = tnp.trace(model)(src, tgt)
    weights = trace["decoder.layers.0.cross_attention.weights"]
    assert weights is trace["decoder.layers.0.cross_attention.attention.weights"]
    assert np.array_equal(weights, model.decoder.layers[0].cross_attention.weights)
    assert trace["encoder.layers.0.feed_forward.linear1.weight"].shape == (8, 16)
    assert trace["encoder.layers.0.feed_forward.linear1.weight.grad"].any()
    assert "encoder.layers.0.feed_forward.hidden" in trace
    assert len({s.name for s in trace.steps}) == len(trace)
    with pytest.raises(KeyError, match=r"could be any of encoder\.layers\.0.*say which"):
        trace["weights"]
    with pytest.raises(KeyError, match=r"no step is called.*self_attention\.attention\.scores"):
        trace["encoder.layers.0.self_attention.attention.score"]
    with pytest.raises(TypeError, match="takes a name, got int 3"):
        trace[3]


def test_a_tied_matrix_goes_by_each_of_its_names():
    model, src, tgt = transformer(tie_embeddings="target")
    trace = tnp.trace(model)(src, tgt)
    assert trace["output.weight"] is trace["tgt_embedding.weight"]
    assert trace["output.weight.grad"] is trace["tgt_embedding.weight.grad"]
    assert "tgt_embedding.weight" in trace.step("output.logits_rows.1").inputs
    known = {s.name for s in trace.steps} | set(trace.parameters)
    assert all(set(s.inputs) <= known for s in trace.steps)


def test_refusals():
    with pytest.raises(TypeError, match="model must have forward and backward, got int 3"):
        tnp.trace(3)
    with pytest.raises(TypeError, match=r"the class ReLU, expected an object: ReLU\(\.\.\.\)"):
        tnp.trace(layers.ReLU)
    with pytest.raises(TypeError, match="loss_fn must have forward and backward"):
        tnp.trace(layers.ReLU(), abs, X)
    with pytest.raises(ValueError, match="loss_fn needs targets too"):
        tnp.trace(layers.ReLU(), tnp.CrossEntropy())
    with pytest.raises(ValueError, match="not both"):
        tnp.trace(layers.ReLU(), tnp.CrossEntropy(), X, X)
