"""How strong is a test of a backward? Run the known mistakes against it and count those it catches.

A test that passes on the right backward proves nothing yet: it may pass on wrong ones too. `power` shows it those.
"""

import json
from dataclasses import dataclass, field

import numpy as np

from .mistakes import LAYERS


class Weight:
    """A parameter and its gradient, `.data` and `.grad`."""

    def __init__(self, data):
        self.data, self.grad = data, np.zeros_like(data)


class Exhibit:
    """A layer of the museum as an object to be tested, with the right backward or with a wrong one.

    forward(*inputs) gives the output; backward(dy) returns the gradient of the inputs (a tuple when there are several,
    None for ids and masks) and adds to each parameter's `.grad`. `example` holds inputs to feed it, `name` the layer,
    parameters are attributes (`layer.gamma.data`), and parameters() and named_parameters() list them.
    """

    def __init__(self, layer, mistake=None, seed=0):
        values = layer.draw(np.random.default_rng([seed, 7]))
        self.name = layer.name
        self.example = tuple(np.asarray(values[name]) for name in layer.inputs)
        self.settings = {name: value for name, value in values.items() if name not in layer.shapes}
        self._layer, self._cache = layer, None
        self._backward = mistake.backward if mistake else layer.backward
        self._weights = {name: Weight(values[name]) for name in layer.parameters}
        for name, weight in self._weights.items():
            setattr(self, name, weight)

    def forward(self, *inputs):
        """The layer's output."""
        weights = {name: weight.data for name, weight in self._weights.items()}
        given = dict(zip(self._layer.inputs, inputs, strict=True))
        y, self._cache = self._layer.forward(**given, **weights, **self.settings)
        return y

    def backward(self, dy=1.0):
        """The gradients of the inputs; those of the parameters are added to their `.grad`."""
        if self._cache is None:
            raise RuntimeError(f"{self.name}: backward needs a forward first")
        gradients = self._backward(dy, self._cache)
        self._cache = None
        for name, weight in self._weights.items():
            # A gradient of the wrong shape replaces the sum, as assignment to .grad would.
            fits = np.shape(gradients[name]) == weight.grad.shape
            weight.grad = weight.grad + gradients[name] if fits else gradients[name]
        returned = tuple(gradients.get(name) for name in self._layer.inputs)
        return returned[0] if len(returned) == 1 else returned

    def named_parameters(self):
        """(name, Weight) pairs."""
        return list(self._weights.items())

    def parameters(self):
        """The Weights."""
        return list(self._weights.values())


def as_functions(layer, mistake=None, seed=0):
    """The same as a pair of functions: `out, cache = forward(*arrays)`, `gradients = backward(dy, cache)`.

    forward takes inputs and parameters in the layer's order; backward returns a gradient for each of them, None for ids
    and masks. `forward.example` holds arrays to feed it.
    """
    values = layer.draw(np.random.default_rng([seed, 7]))
    settings = {name: value for name, value in values.items() if name not in layer.shapes}
    right_or_wrong = mistake.backward if mistake else layer.backward

    def forward(*arrays):
        return layer.forward(**dict(zip(layer.shapes, arrays, strict=True)), **settings)

    def backward(dy, cache):
        gradients = right_or_wrong(dy, cache)
        returned = tuple(gradients.get(name) for name in layer.shapes)
        return returned[0] if len(returned) == 1 else returned

    forward.example = tuple(np.asarray(values[name]) for name in layer.shapes)
    return forward, backward


@dataclass
class Power:
    """What `power` found. caught, missed: the mistakes; useless: layers whose right backward the test rejects, with the
    reason; their mistakes are not counted, for a test that rejects everything catches everything."""

    caught: list = field(default_factory=list)
    missed: list = field(default_factory=list)
    useless: dict = field(default_factory=dict)

    @property
    def total(self):
        """The mistakes that the test was shown."""
        return len(self.caught) + len(self.missed)

    @property
    def score(self):
        """The share of them that it caught, from 0 to 1; 0 where it could be shown none."""
        return len(self.caught) / self.total if self.total else 0.0

    @property
    def ok(self):
        """True when the test accepts every right backward and lets no mistake through."""
        return bool(self.total) and not self.missed and not self.useless

    def text(self):
        """A few lines for people."""
        lines = []
        if self.total:
            lines.append(f"this test would have caught {len(self.caught)} of {self.total} known mistakes")
        for name, reason in self.useless.items():
            lines.append(f"it rejects the right backward of {name}, so what it says there means nothing: {reason}")
        if self.missed:
            lines.append("it lets through:")
            lines += [f"  {m.title}: {m.what}" for m in self.missed]
        return "\n".join(lines) if lines else "no layer to test"

    def to_dict(self):
        """Plain values for JSON."""
        return {
            "caught": [m.title for m in self.caught],
            "missed": [m.title for m in self.missed],
            "useless": dict(self.useless),
            "total": self.total,
            "score": self.score,
            "ok": self.ok,
        }

    def to_json(self, indent=None):
        """The same as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    def __str__(self):
        return self.text()


def chosen(layers):
    """The museum's layers of these names; all for None. Raises ValueError for a name it does not have."""
    if layers is None:
        return LAYERS
    names = [layers] if isinstance(layers, str) else list(layers)
    by_name = {layer.name: layer for layer in LAYERS}
    for name in names:
        if name not in by_name:
            raise ValueError(f"power: layers: got {name!r}, expected one of {', '.join(by_name)}")
    return [by_name[name] for name in names]


def rejected(test, subject):
    """Why the test rejects the subject, or None where it accepts it."""
    try:
        with np.errstate(all="ignore"):
            verdict = test(*subject) if isinstance(subject, tuple) else test(subject)
    except Exception as error:  # a test may reject by any exception: a failed assert, a shape that does not fit
        return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if verdict is False or getattr(verdict, "ok", None) is False:
        return "it said no"
    return None


def power(test, layers=None, functions=False, seed=0):
    """Run the known mistakes against a test of a backward and say how many it would have caught.

    test: called with a layer-like object (`Exhibit`: forward, backward, parameters, `example` inputs), or with
    functions=True with the pair (forward, backward). It rejects by raising, by returning False, or by returning a
    report whose `.ok` is False. layers: names of the museum's layers, or one name; all by default. seed: of the values.

    The right backward is shown first: a test that rejects it is useless for that layer, and that is said instead.
    Mistakes that are provably no mistakes are not shown. Returns a `Power`. Raises TypeError where the test cannot be
    called, ValueError for a layer that is not in the museum.
    """
    if not callable(test):
        raise TypeError(f"power: test: got {type(test).__name__}, expected a function of a layer")
    build = as_functions if functions else Exhibit
    found = Power()
    for layer in chosen(layers):
        reason = rejected(test, build(layer, None, seed))
        if reason is not None:
            found.useless[layer.name] = reason
            continue
        for mistake in layer.mistakes:
            if not mistake.equivalent:
                let_through = rejected(test, build(layer, mistake, seed)) is None
                (found.missed if let_through else found.caught).append(mistake)
    return found
