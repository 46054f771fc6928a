"""Which layer of a model is wrong: each sub-layer is checked with the input and upstream gradient it really got.

Sub-layers are found through the attributes of any object, lists and dictionaries included; nothing is asked of them but
`forward` and `backward`. Parts finish their backward before the whole does, so in the order of finishing the first
wrong layer is the culprit: everything inside it has passed.
"""

from dataclasses import dataclass, field

from ..backend import array_module
from .trees import differentiable, leaves, rebuild


@dataclass
class Call:
    """One use of a sub-layer: where it is, what it got, what it gave, what came back."""

    path: str
    layer: object
    args: tuple
    kwargs: dict
    outputs: list = field(default_factory=list)
    upstream: list | None = None
    gradients: list = field(default_factory=list)


def sublayers(layer):
    """Return (path, object) for every object inside `layer` that has forward and backward, outermost first."""
    found, seen = [], {id(layer)}

    def visit(value, path):
        if isinstance(value, dict):
            for key, part in value.items():
                visit(part, f"{path}.{key}")
        elif isinstance(value, (list, tuple)):
            for i, part in enumerate(value):
                visit(part, f"{path}.{i}")
        elif _is_layer(value) and id(value) not in seen:
            seen.add(id(value))
            found.append((path, value))
            visit_attributes(value, path + ".")

    def visit_attributes(holder, prefix):
        for name, value in vars(holder).items():
            visit(value, prefix + name)

    if hasattr(layer, "__dict__"):
        visit_attributes(layer, "")
    return found


def _is_layer(value):
    return (
        hasattr(value, "__dict__")
        and not isinstance(value, type)
        and callable(getattr(value, "forward", None))
        and callable(getattr(value, "backward", None))
    )


def record(layer, run):
    """Call `run()` and return (calls in forward order, calls in the order their backward finished)."""
    started, finished, undo = [], [], []
    try:
        for path, part in sublayers(layer):
            for method, wrapped in _wrapped(path, part, started, finished).items():
                undo.append((part, method, vars(part).get(method)))
                setattr(part, method, wrapped)
        run()
    finally:
        for part, method, own in reversed(undo):
            if own is None:
                delattr(part, method)
            else:
                setattr(part, method, own)
    return started, finished


def _wrapped(path, part, started, finished):
    forward, backward = part.forward, part.backward
    waiting = []

    def recording_forward(*args, **kwargs):
        call = Call(path, part, _copied(args), _copied(kwargs))
        started.append(call)
        result = forward(*args, **kwargs)
        call.outputs = [y.copy() for _, y in leaves(result)]
        waiting.append(call)
        return result

    def recording_backward(*dys, **kwargs):
        copies = [dy.copy() for _, dy in leaves(dys)]
        result = backward(*dys, **kwargs)
        if waiting:
            call = waiting.pop()
            call.upstream = copies
            call.gradients = [g.copy() for _, g in leaves(result)]
            finished.append(call)
        return result

    return {"forward": recording_forward, "backward": recording_backward}


def _copied(tree):
    return rebuild(tree, iter([array.copy() for _, array in leaves(tree)]))


def _finite(arrays):
    return all(bool(array_module(a).isfinite(a).all()) for a in arrays if differentiable(a))


def first_nonfinite(started, finished):
    """Name the first layer that made NaN or infinity of finite numbers: (path, class name, "forward" or "backward")."""
    done = [call for call in started if call.outputs]
    inner_first = sorted(done, key=lambda call: -call.path.count("."))
    for call in [c for c in inner_first if _finite(_arrays(c)) and not _finite(c.outputs)]:
        return call.path, type(call.layer).__name__, "forward"
    for call in finished:
        if _finite(call.upstream) and not _finite(call.gradients):
            return call.path, type(call.layer).__name__, "backward"
    return None


def _arrays(call):
    return [a for _, a in leaves(call.args) + leaves(call.kwargs)]
