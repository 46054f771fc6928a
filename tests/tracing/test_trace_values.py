"""Every value in a trace is that of an untraced run, bit for bit: in evaluation, and in training with dropout drawn."""

import copy
import functools

import numpy as np
import pytest
from traced_layers import LAYERS, MODELS

import transformer_np as tnp
from transformer_np.module import Module
from transformer_np.tracing.run import call_backward, forward_of, random_like

CASES = LAYERS | MODELS


def arrays_of(value):
    """The float arrays of what a method took or returned."""
    if isinstance(value, (tuple, list)):
        return [a for part in value for a in arrays_of(part)]
    return [value] if isinstance(value, np.ndarray) and value.dtype.kind == "f" else []


def listen(layer):
    """Note, without any tracing, copies of all that goes in and out of every layer's forward and backward."""
    heard = []

    def around(name, thing, method):
        inner = getattr(thing, method)

        @functools.wraps(inner)
        def outer(*inputs, **options):
            given = [a.copy() for a in arrays_of([*inputs, *options.values()])]
            result = inner(*inputs, **options)
            heard.append((name, method, given, [a.copy() for a in arrays_of(result)]))
            return result

        setattr(thing, method, outer)

    for name, thing in list(layer.named_modules()):
        for method in ("forward", "backward"):
            around(name, thing, method)
    return heard


def untraced(layer, inputs):
    """Run forward and backward as a trace does, listening; return (what was heard, what each layer kept, gradients)."""
    heard = listen(layer)
    y = layer.forward(*inputs)
    kept = [
        (name, [a.copy() for a in arrays_of(thing._saved and thing._saved[0])]) for name, thing in layer.named_modules()
    ]
    call_backward(layer, y, random_like(y))
    return heard, kept, {name: p.grad for name, p in layer.named_parameters()}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_bits(name, training):
    layer, inputs = CASES[name](np.random.default_rng(3))
    layer.train(training)
    twin = copy.deepcopy(layer)  # its random streams stand where the layer's do
    heard, kept, gradients = untraced(twin, inputs)
    trace = tnp.trace(layer)(*inputs)

    seen = {}
    for step in trace.steps:
        seen.setdefault(step.module, set()).add(step.value.tobytes())
    for module, method, given, returned in heard:
        for array in given + returned:
            assert array.tobytes() in seen[module], (module, method)
    for module, arrays in kept:
        for array in arrays:
            assert array.tobytes() in seen[module], module
    for key, gradient in gradients.items():
        assert trace[f"{key}.grad"].tobytes() == gradient.tobytes(), key
    assert trace.compare(tnp.trace(CASES[name](np.random.default_rng(3))[0].train(training))(*inputs))


def test_the_loss_too():
    rng = np.random.default_rng(0)
    model = tnp.Transformer(9, 9, 8, 2, 1, 1, 16, max_len=8)
    src, tgt, targets = rng.integers(1, 9, (3, 2, 4))
    loss_fn = tnp.CrossEntropy(label_smoothing=0.1, ignore_index=0)
    twin = copy.deepcopy(model)
    logits = twin.forward(src, tgt)
    loss = loss_fn.forward(logits, targets)
    dlogits = loss_fn.backward()
    twin.backward(dlogits.copy())
    trace = tnp.trace(model, loss_fn, targets)(src, tgt)
    assert trace.loss == loss
    assert np.array_equal(trace["loss.dlogits"], dlogits)
    assert np.array_equal(trace["dlogits"], dlogits)
    assert np.array_equal(trace.output, logits)
    assert float(trace["loss.loss"]) == loss
    for name, p in twin.named_parameters():
        assert np.array_equal(trace.gradients[name], p.grad), name
    for name in ("encoder.layers.0.self_attention", "decoder.layers.0.cross_attention"):
        part = twin
        for key in name.split("."):
            part = part[int(key)] if key.isdigit() else getattr(part, key)
        assert np.array_equal(trace[f"{name}.weights"], part.weights)


def test_what_is_overwritten_later_is_shown_as_it_was():
    """The scores' array becomes the weights', in place; the trace has both."""
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 1, 2, 4, 3))
    trace = tnp.trace(tnp.layers.ScaledDotProductAttention())(q, k, v)
    np.testing.assert_allclose(trace["scores"], q @ k.swapaxes(-1, -2) / np.sqrt(3), rtol=0, atol=1e-14)
    np.testing.assert_allclose(trace["weights"].sum(-1), 1, rtol=0, atol=1e-14)


def test_a_trace_of_a_loss_alone():
    rng = np.random.default_rng(0)
    logits, targets = rng.standard_normal((2, 3, 5)), rng.integers(0, 5, (2, 3))
    trace = tnp.trace(tnp.CrossEntropy())(logits, targets)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(trace["dlogits"], (p - np.eye(5)[targets]) / 6, rtol=0, atol=1e-15)


def test_every_step_says_where_it_came_from():
    layer, inputs = CASES["EncoderLayer, post"](np.random.default_rng(0))
    trace = tnp.trace(layer)(*inputs)
    known = {s.name for s in trace.steps} | set(trace.parameters)
    for i, step in enumerate(trace.steps):
        assert step.index == i
        assert trace[step.name] is step.value
        assert not step.value.flags.writeable
        assert set(step.inputs) <= known
        assert (step.source == "") == (step.role == "argument")
    scores = trace.step("self_attention.scores")
    assert scores.inputs == ("self_attention.attention.q_scaled", "self_attention.attention.k")
    assert scores.letters == "(..., T, S)"
    assert isinstance(trace.model, Module)
    assert forward_of(layer) == layer.forward
