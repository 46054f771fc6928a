"""Evidence for the tests of the diagnosis: from the museum's mistakes and from the held-out list."""

import numpy as np

from transformer_np.checking.evidence import Evidence


def evidence(name, inputs, parameters, attributes, y, dy, wrong, right, previous=None):
    """What the engine would hand over, with an error bar of differences in float64."""
    bar = 1e-10 * max(np.abs(right[name]).max(), 1e-3)
    kind = "input" if name in inputs else "parameter"
    return Evidence(
        name,
        kind,
        wrong[name],
        right[name],
        bar,
        inputs,
        parameters,
        y,
        dy,
        wrong,
        right,
        attributes,
        "Layer",
        previous,
    )


def of_mistake(mistake, seed=0, values=None):
    """One Evidence for each array that the mistake touches."""
    rng, layer = np.random.default_rng(seed), mistake.layer
    values = layer.draw(rng) if values is None else values
    y, cache = layer.forward(**values)
    dy = rng.normal(size=np.shape(y))
    right, wrong = layer.backward(dy, cache), mistake.backward(dy, cache)
    inputs, parameters = ({n: values[n] for n in names} for names in (layer.inputs, layer.parameters))
    attributes = {n: v for n, v in values.items() if n not in layer.shapes}
    return [evidence(n, inputs, parameters, attributes, y, dy, wrong, right) for n in mistake.arrays(dy, cache)]


def of_case(case, seed=0):
    """The Evidence of one held-out case."""
    layer, _, _, array, wrong = case
    rng = np.random.default_rng(seed)
    inputs, parameters, attributes = layer.draw(rng)
    v = {**attributes, **inputs, **parameters}
    y = np.asarray(layer.forward(v))
    dy = rng.normal(size=y.shape)
    before = {**v, **{name: rng.normal(size=a.shape) for name, a in inputs.items() if a.dtype.kind == "f"}}
    v["previous"] = layer.backward(rng.normal(size=y.shape), before)
    right = layer.backward(dy, v)
    given = {**right, array: wrong(dy, v, right)}
    return evidence(array, inputs, parameters, attributes, y, dy, given, right, v["previous"][array])
