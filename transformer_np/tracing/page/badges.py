"""The gradient check of each layer of a trace: its backward against finite differences, on the recorded inputs."""

import copy
import inspect

import numpy as np

from ...checking import gradcheck
from ...module import Module
from ..run import objects_in

MOST_PARTS, MOST_NUMBERS = 32, 300_000  # larger layers are judged by their parts alone
PASSED = ("PASS", "KINK")


def badges_of(trace):
    """Return {dotted name: {"status", "text", "error"}} for every layer that ran.

    status: "ok", "wrong", "parts" (not checked as a whole; all its parts are ok), or "none" (not checked).
    The check runs in float64 on a copy of the layer. Layers of one class with the same sizes, inputs of the same shapes
    and the same code share one check: their numbers differ, the code does not.
    """
    objects = dict(objects_in(trace.model, trace.loss_fn).values())
    inputs, done, found = _inputs(trace), {}, {}
    for name in sorted(objects, key=lambda n: -n.count(".") if n else 1):
        if name in inputs:
            found[name] = _badge(name, objects[name], inputs[name], done, found)
    for name in {s.module for s in trace.steps} - set(found):
        found[name] = {"status": "none", "text": "gradients not checked", "error": None}
    return found


def _inputs(trace):
    """{dotted name: {argument: array}} of the first forward of every layer."""
    found, call = {}, {}
    for step in trace.steps:
        enters = step.phase != "backward" and step.role == "argument" and step.method in ("forward", "__call__")
        if enters and call.setdefault(step.module, step.call) == step.call:
            found.setdefault(step.module, {})[step.variable] = step.value
    return found


def _badge(name, layer, inputs, done, found):
    parts = [m for m in found if m.startswith(f"{name}." if name else "") and m != name]
    reason = _too_large(layer)
    if reason is None:
        try:
            arguments = _arguments(layer, inputs)
        except LookupError as missing:
            reason = f"its {missing.args[0]} was not recorded"
    if reason is not None:
        if parts and all(found[p]["status"] in ("ok", "parts") for p in parts):
            return {"status": "parts", "text": f"its parts are checked one by one ({reason})", "error": None}
        if any(found[p]["status"] == "wrong" for p in parts):
            return {"status": "wrong", "text": "a layer inside is wrong", "error": None}
        return {"status": "none", "text": f"gradients not checked: {reason}", "error": None}
    key = (likeness(layer), tuple(a if a is None else (a.shape, a.dtype.kind) for a in arguments))
    if key not in done:
        done[key] = (name, _check(layer, arguments))
    first, badge = done[key]
    if first != name:
        badge = {**badge, "text": f"{badge['text']}; checked on {first or 'the model'}, of the same class and sizes"}
    return badge


def _too_large(layer):
    """Why a layer is not checked as a whole, or None."""
    if not isinstance(layer, Module):
        return None
    if sum(1 for _ in layer.named_modules()) > MOST_PARTS:
        return "there are too many to check at once"
    if layer.n_parameters() > MOST_NUMBERS:
        return f"{layer.n_parameters():,} parameters take too long"
    return None


def _arguments(layer, inputs):
    """The recorded arguments in the order of forward's; LookupError for one that has no default."""
    forward = layer.forward if hasattr(layer, "forward") else layer
    out, last = [], 0
    for parameter in inspect.signature(forward).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.KEYWORD_ONLY):
            continue
        value = inputs.get(parameter.name, parameter.default)
        if value is parameter.empty:
            raise LookupError(f"argument {parameter.name}")
        out.append(value)
        last = len(out) if parameter.name in inputs else last
    return [a.astype(np.float64) if a is not None and a.dtype.kind == "f" else a for a in out[:last]]


def _check(layer, arguments):
    layer = copy.deepcopy(layer)
    options = {"contracts": False, "points": 1, "directions": 1, "explain": False}
    report = gradcheck(layer, *arguments, replay=hasattr(layer, "replay_dropout"), **options)
    slopes = [(a, n) for array in report.arrays for a, n, _ in array.slopes]
    size = max((max(abs(a), abs(n)) for a, n in slopes), default=0.0)
    # A gradient that is zero but for rounding is measured against the others, not against itself.
    error = max(abs(a - n) / max(abs(a), abs(n), 1e-6 * size) for a, n in slopes) if size else None
    if report.status in PASSED:
        text = "gradients checked against finite differences in float64, on the inputs seen here"
        return {"status": "ok", "text": text, "error": error}
    if report.status in ("FAIL", "SHAPE", "MUTATED", "ERROR", "NONFINITE"):
        return {"status": "wrong", "text": report.message or "the backward is wrong", "error": error}
    reason = report.message or report.status.lower()
    return {"status": "none", "text": f"gradients not checked: {reason}", "error": error}


def likeness(layer):
    """What two layers must have in common to share a check: class, settings, code set on the object, and parts."""
    settings = []
    for name, value in vars(layer).items():
        if isinstance(value, (bool, int, float, str, type(None))):
            settings.append((name, value))
        elif callable(value) and not hasattr(value, "backward"):
            settings.append((name, id(value)))
    parts = [(n, likeness(c)) for n, c in layer.children()] if isinstance(layer, Module) else id(layer)
    shapes = [(n, p.shape) for n, p in layer.named_parameters()] if isinstance(layer, Module) else ()
    return repr((type(layer), id(type(layer).backward), id(type(layer).forward), settings, shapes, parts))
