"""The parameters of a traced object and their gradients: emptied for the trace, put back afterwards."""

import numpy as np

from ..backend import array_module, to_numpy
from ..checking.parameters import find_parameters
from ..module import Module, Parameter


def values_of(model):
    """Return {dotted name: copy of the value}."""
    return {name: np.array(to_numpy(value)) for name, value in _values(model)}


def _values(model):
    if isinstance(model, Module):
        return [(name, p.data) for name, p in model.named_parameters()]
    return [(slot.name, slot.get()) for slot in find_parameters(model)]


def names_of_shared(model):
    """Return {id of a Parameter: the name it goes by}, and {every other dotted name of it: that one}."""
    if not isinstance(model, Module):
        return {}, {}
    names = {id(p): name for name, p in model.named_parameters()}
    others = {}
    for prefix, layer in model.named_modules():
        for attribute, value in vars(layer).items():
            name = f"{prefix}.{attribute}" if prefix else attribute
            if isinstance(value, Parameter) and names[id(value)] != name:
                others[name] = names[id(value)]
    return names, others


def gradients_of(model):
    """Return {dotted name: copy of the gradient}."""
    if isinstance(model, Module):
        return {name: np.array(to_numpy(p.grad)) for name, p in model.named_parameters()}
    return {slot.name: sum(np.array(to_numpy(g)) for g in slot.gradients()) for slot in find_parameters(model)}


def take_gradients(model):
    """Empty every gradient; return a function that puts back what was there, the very objects."""
    if isinstance(model, Module):
        kept = [(p, p._grad) for p in model.parameters()]  # reading `grad` would make zeros where there was nothing
        model.zero_grad()

        def put_back():
            for p, gradient in kept:
                p._grad = gradient

        return put_back
    places = [(place, place.get()) for slot in find_parameters(model) for place in slot.grads]
    for place, value in places:
        if value is not None:
            place.set(array_module(value).zeros_like(value))

    def put_back_all():
        for place, value in places:
            place.set(value)

    return put_back_all
