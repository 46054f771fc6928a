"""The subject of a check: how to run it forward and backward, whoever wrote it.

Three manners are understood:

- an object with `forward` and `backward`: a layer of this package, a student's class, a stranger's; a loss too, whose
  `backward()` takes no upstream gradient;
- a pair of functions `(forward, backward)`: `out, cache = forward(x, w, b)` and `dx, dw, db = backward(dout, cache)`;
- one function that returns its own gradient: `loss, dx = softmax_loss(x, y)`.
"""

import functools
import inspect

from .parameters import find_parameters
from .trees import as_arrays, is_array, leaves, rebuild

UPSTREAM_NAMES = ("d", "grad", "g", "upstream", "cotangent", "delta", "up")


def adapt(subject, parameters=None):
    """Return the adapter for a layer, a `(forward, backward)` pair or a function; TypeError for anything else."""
    if isinstance(subject, tuple) and len(subject) == 2 and all(callable(part) for part in subject):
        return FunctionPair(*subject)
    if callable(getattr(subject, "backward", None)) and (hasattr(subject, "forward") or callable(subject)):
        if inspect.isclass(subject):
            raise TypeError(
                f"gradcheck: got the class {subject.__name__}, expected an instance of it: {subject.__name__}(...)"
            )
        return LayerObject(subject, parameters)
    if inspect.isfunction(subject):
        return ValueAndGradient(subject)
    raise TypeError(
        f"gradcheck: got {type(subject).__name__}, expected an object with forward and backward, "
        "a pair of functions (forward, backward), or a function that returns (loss, gradient)"
    )


def signature_of(function):
    """Return (required, optional) positional parameter names; ([], None) where Python cannot tell."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ["dy"], []
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD], None
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return (
        [p.name for p in positional if p.default is p.empty],
        [p.name for p in positional if p.default is not p.empty],
    )


def argument_names(function, count, everything=False):
    """Name the first `count` positional arguments of a function after its signature, or all that it declares."""
    required, optional = signature_of(function)
    if everything:
        return required + (optional or [])
    names = (required + (optional or []))[:count]
    return names + [f"input{i}" for i in range(len(names), count)]


def upstream_arguments(signature, tree, is_scalar):
    """Return the positional arguments that hand the upstream gradients `tree` to a backward of this signature.

    A backward without parameters belongs to a loss and gets none. Several outputs are handed over one by one where the
    signature has room for them, else as one tuple.
    """
    required, optional = signature
    if not required and optional == []:
        return ()
    if not required and optional and is_scalar and not optional[0].lower().startswith(UPSTREAM_NAMES):
        return ()
    if isinstance(tree, (tuple, list)):
        room = None if optional is None else len(required) + len(optional)
        if room is None or room >= len(tree) > 1 or len(tree) == 1:
            return tuple(tree)
    return (tree,)


class LayerObject:
    """An object with `forward` and `backward`; its parameters and their gradients are found by `find_parameters`."""

    def __init__(self, layer, parameters=None):
        self.layer, self.wanted = layer, parameters
        self.name = type(layer).__name__
        self.run = layer.forward if hasattr(layer, "forward") else layer
        self.tree = None

    @functools.cached_property
    def signature(self):
        """The signature of backward, looked up once."""
        return signature_of(self.layer.backward)

    def input_names(self, count, everything=False):
        """The names of the first arguments of forward, or of all of them."""
        return argument_names(self.run, count, everything)

    def forward(self, args, kwargs):
        """Run forward; return the output arrays."""
        run = self.layer.forward if hasattr(self.layer, "forward") else self.layer
        self.tree = as_arrays(run(*args, **kwargs))
        return [array for _, array in leaves(self.tree)]

    @property
    def takes_upstream(self):
        """Whether backward is given an upstream gradient; that of a loss may not be."""
        return bool(upstream_arguments(self.signature, self.tree, self.is_scalar))

    @property
    def is_scalar(self):
        """Whether the last output was one number."""
        return is_array(self.tree) and self.tree.ndim == 0

    def backward(self, dys):
        """Run backward with one upstream gradient an output; return what it returned."""
        tree = rebuild(self.tree, iter(dys))
        return self.layer.backward(*upstream_arguments(self.signature, tree, self.is_scalar))

    def parameters(self):
        """The slots of the parameters."""
        return find_parameters(self.layer, self.wanted)


class FunctionPair:
    """`out, cache = forward(*inputs)` and `gradients = backward(dout, cache)`; every array is an input.

    Also understood: backward(cache, dout), backward(cache) for a loss, several outputs before the cache, and functions
    without a cache: backward(dout, *inputs) or backward(dout).
    """

    def __init__(self, forward, backward):
        self.run, self.run_backward = forward, backward
        self.name = getattr(forward, "__name__", type(forward).__name__)
        self.tree = self.cache = self.inputs = None
        self.has_cache = False

    @functools.cached_property
    def signature(self):
        """The signature of backward, looked up once."""
        return signature_of(self.run_backward)

    def input_names(self, count, everything=False):
        """The names of the first arguments of forward, or of all of them."""
        return argument_names(self.run, count, everything)

    def forward(self, args, kwargs):
        """Run forward; return the output arrays."""
        result = self.run(*args, **kwargs)
        self.inputs = args
        required, optional = self.signature
        self.has_cache = isinstance(result, tuple) and len(result) > 1 and (optional is None or len(required) <= 2)
        if self.has_cache:
            outputs, self.cache = result[:-1], result[-1]
            result = outputs[0] if len(outputs) == 1 else outputs
        self.tree = as_arrays(result)
        return [array for _, array in leaves(self.tree)]

    @property
    def is_scalar(self):
        """Whether the last output was one number."""
        return is_array(self.tree) and self.tree.ndim == 0

    @property
    def takes_upstream(self):
        """Whether backward is given an upstream gradient; that of a loss may not be."""
        required, optional = self.signature
        return not (
            self.has_cache
            and len(required) == 1
            and not optional
            and not required[0].lower().startswith(UPSTREAM_NAMES)
        )

    def backward(self, dys):
        """Run backward with one upstream gradient an output; return what it returned."""
        tree = rebuild(self.tree, iter(dys))
        required, optional = self.signature
        if not self.has_cache:
            with_inputs = optional is None or len(required) + len(optional) > 1
            return self.run_backward(tree, *self.inputs) if with_inputs else self.run_backward(tree)
        if not self.takes_upstream:
            return self.run_backward(self.cache)
        if required and required[0].lower() in ("cache", "ctx", "context", "saved"):
            return self.run_backward(self.cache, tree)
        return self.run_backward(tree, self.cache)

    def parameters(self):
        """The slots of the parameters; functions have none, all their arrays are inputs."""
        return []


class ValueAndGradient:
    """One function that returns its value and its gradient: `loss, dx = softmax_loss(x, y)`."""

    takes_upstream = False
    is_scalar = True

    def __init__(self, function):
        self.run, self.name = function, function.__name__
        self.tree = self.gradient = None

    def input_names(self, count, everything=False):
        """The names of the first arguments of forward, or of all of them."""
        return argument_names(self.run, count, everything)

    def forward(self, args, kwargs):
        """Run forward; return the output arrays."""
        result = self.run(*args, **kwargs)
        if not (isinstance(result, tuple) and len(result) >= 2):
            raise TypeError(
                f"gradcheck: {self.name} returned {type(result).__name__}, expected (loss, gradient); "
                "for a layer give an object or a pair of functions (forward, backward)"
            )
        value, self.gradient = result[0], result[1] if len(result) == 2 else result[1:]
        self.tree = as_arrays(value)
        return [array for _, array in leaves(self.tree)]

    def backward(self, dys):
        """Run backward with one upstream gradient an output; return what it returned."""
        return self.gradient

    def parameters(self):
        """The slots of the parameters; functions have none, all their arrays are inputs."""
        return []
