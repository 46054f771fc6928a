"""`tnp.trace`: run a model forward, through its loss, and backward, with everything recorded."""

import numpy as np

from ..backend import array_module, to_numpy
from ..checking.adapters import signature_of, upstream_arguments
from ..checking.trees import as_arrays, leaves
from ..module import Module, is_inference
from .ledger import Ledger, take_stock
from .letters import letters_of_sizes
from .parameters import gradients_of, names_of_shared, take_gradients, values_of
from .recorder import Recorder
from .trace import Trace


def trace(model, loss_fn=None, targets=None, dy=None, tokens=None):
    """Return a function that runs `model` on its inputs, forward and backward, and returns the Trace.

        t = tnp.trace(model)(src, tgt)
        t["decoder.layers.0.cross_attention.weights"]

    Where backward begins: with loss_fn and targets, at the loss; else with `dy`, one array, or a tuple where forward
    returns several; else with numbers drawn from N(0, 1) by a generator of its own (seed 0), so that the gradients are
    those of sum(dy * y), or with 1 where forward returns a single number, as a loss does. Inside `tnp.inference()`
    there is no backward, and the trace ends with forward.
    `tokens` = (source tokens, target tokens) are labels for tables and pictures.
    Works on any object with forward and backward, also a class of your own.
    The model is left as an untraced forward and backward leave it, but for the parameters' gradients: these are as they
    were before, and the new ones are in the trace.
    Raises TypeError for an object without forward and backward, ValueError where only one of loss_fn and targets is
    given, or dy besides. What the model itself raises passes through.
    """
    _check(model, loss_fn, targets, dy)

    def run(*inputs, **options):
        return _run(model, loss_fn, targets, dy, tokens, inputs, options)

    run.__doc__ = f"Run {type(model).__name__} forward and backward on these inputs; return the Trace."
    return run


def _check(model, loss_fn, targets, dy):
    for thing, name in ((model, "model"), (loss_fn, "loss_fn")):
        if thing is None and name == "loss_fn":
            continue
        if isinstance(thing, type):
            raise TypeError(f"trace: {name} is the class {thing.__name__}, expected an object: {thing.__name__}(...)")
        if not callable(getattr(thing, "backward", None)) or not (hasattr(thing, "forward") or callable(thing)):
            raise TypeError(f"trace: {name} must have forward and backward, got {type(thing).__name__} {thing!r:.40}")
    if (loss_fn is None) != (targets is None):
        missing, given = ("targets", "loss_fn") if targets is None else ("loss_fn", "targets")
        raise ValueError(f"trace: {given} needs {missing} too")
    if loss_fn is not None and dy is not None:
        raise ValueError("trace: give loss_fn and targets, or dy, not both")


def _run(model, loss_fn, targets, dy, tokens, inputs, options):
    parameters, put_back = values_of(model), take_gradients(model)
    names, shared = names_of_shared(model)
    recorder = Recorder(objects_in(model, loss_fn), parameters=names)
    loss, held = None, []
    try:
        with recorder:
            y = forward_of(model)(*inputs, **options)
            output, held = _copied(y), take_stock(recorder.objects, recorder.records)
            if not is_inference():
                recorder.phase = "loss"
                if loss_fn is not None:
                    loss = forward_of(loss_fn)(y, targets)
                recorder.phase = "backward"
                dy = loss_fn.backward() if loss_fn is not None else random_like(y) if dy is None else dy
                call_backward(model, y, dy)
        gradients = gradients_of(model)
    finally:
        put_back()
    labels = None if tokens is None else dict(zip(("src", "tgt"), tokens, strict=False))
    return Trace(
        recorder.records,
        recorder.aliases,
        model=model,
        parameters=parameters,
        shared=shared,
        gradients=gradients,
        output=output,
        loss=loss,
        tokens=labels,
        letters=letters_of_sizes(model, inputs),
        ledger=Ledger(held, recorder.products),
        loss_fn=loss_fn,
    )


def forward_of(thing):
    """The function that runs it forward."""
    return thing.forward if hasattr(thing, "forward") else thing


def call_backward(model, y, dy):
    """Call model.backward with the upstream gradient in the form in which it takes it."""
    signature, tree = signature_of(model.backward), as_arrays(y)
    if isinstance(dy, tuple):
        return model.backward(*upstream_arguments(signature, dy, False))
    return model.backward(*upstream_arguments(signature, dy, getattr(tree, "ndim", 1) == 0))


def random_like(y, seed=0):
    """Return numbers from N(0, 1) in the shape and type of what forward returned; for a single number, a loss, 1."""
    rng = np.random.default_rng(seed)

    def draw(array):
        if array.ndim == 0:
            return array_module(array).ones_like(array)
        return array_module(array).asarray(rng.standard_normal(array.shape), dtype=array.dtype)

    y = as_arrays(y)
    return tuple(draw(part) for part in y) if isinstance(y, (tuple, list)) else draw(y)


def objects_in(model, loss_fn=None):
    """Return {id: (dotted name, object)} of everything whose methods are to be recorded."""
    found = {}
    for prefix, thing in (("", model), ("loss", loss_fn)):
        if thing is not None:
            for name, part in _named_objects(thing, prefix):
                found.setdefault(id(part), (name, part))
    return found


def _named_objects(thing, prefix):
    """Yield (dotted name, object): a Module's own naming, or the objects with a backward in the attributes."""
    if isinstance(thing, Module):
        yield from thing.named_modules(prefix)
        return
    waiting, seen = [(prefix, thing)], set()
    while waiting:
        name, part = waiting.pop(0)
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield name, part
        for attribute, value in getattr(part, "__dict__", {}).items():
            inner = f"{name}.{attribute}" if name else attribute
            waiting += [(n, v) for n, v in _items(inner, value) if callable(getattr(v, "backward", None))]


def _items(name, value):
    if isinstance(value, (list, tuple)):
        return [(f"{name}.{i}", part) for i, part in enumerate(value)]
    if isinstance(value, dict):
        return [(f"{name}.{key}", part) for key, part in value.items()]
    return [(name, value)]


def _copied(y):
    copies = tuple(np.array(to_numpy(array)) for _, array in leaves(as_arrays(y)))
    return copies if isinstance(y, (tuple, list)) else copies[0] if copies else y
