"""Where an object keeps its parameters and their gradients, in the manners that people write them.

- `named_parameters()` or `parameters()` giving objects with `.data` and `.grad`: the layers of this package;
- objects with `.value` and `.gradient` in attributes;
- arrays in attributes: `W` with `dW`, `d_W`, `grad_W` or `W_grad`;
- dictionaries `params` and `grads` with the same keys (or `d` + key), lists `params` and `grads` in the same order;
- sub-layers in attributes, lists and dictionaries, searched likewise.

An array that two names share is one parameter; its gradient is the sum of all its gradients.
"""

from .trees import differentiable, is_array

PARAMETER_CONTAINERS = ("params", "parameters", "weights", "_params")
FIELDS = (("data", "grad"), ("value", "grad"), ("value", "gradient"), ("data", "gradient"))
GRADIENT_CONTAINERS = ("grads", "gradients", "dparams", "grad", "_grads")


class Place:
    """A spot that holds an array: an attribute of an object, or an item of the dictionary or list in an attribute."""

    def __init__(self, holder, attribute, key=None):
        self.holder, self.attribute, self.key = holder, attribute, key

    def get(self):
        """The array there, or None."""
        value = getattr(self.holder, self.attribute, None)
        if self.key is None or value is None:
            return value
        try:
            return value[self.key]
        except (KeyError, IndexError):
            return None

    def set(self, value):
        """Put an array there."""
        if self.key is None:
            setattr(self.holder, self.attribute, value)
        else:
            getattr(self.holder, self.attribute)[self.key] = value


class Slot:
    """One parameter: its name, the places that hold it, the places that hold its gradient.

    `accumulates` says that gradients live in a `.grad`, where by custom backward adds.
    """

    def __init__(self, name, data, grad, accumulates):
        self.name, self.data, self.grads, self.accumulates = name, [data], [grad], accumulates

    def get(self):
        """The parameter's array."""
        return self.data[0].get()

    def set(self, array):
        """Put an array in every place that holds this parameter."""
        for place in self.data:
            place.set(array)

    def gradients(self):
        """Return the distinct gradient arrays."""
        found = {}
        for place in self.grads:
            array = place.get()
            if array is not None:
                found[id(array)] = array
        return list(found.values())


def find_parameters(layer, wanted=None):
    """Return the `Slot`s of an object. `wanted` (attribute name -> gradient attribute name) overrides the search.

    Call it after one forward and backward: many classes make `dW` only then. Raises ValueError for a wanted name that
    is not there.
    """
    if wanted is not None:
        for name in wanted:
            if not differentiable(getattr(layer, name, None)):
                raise ValueError(f"parameters: {type(layer).__name__} has no float array named {name!r}")
        return _merge_tied([Slot(name, Place(layer, name), Place(layer, grad), False) for name, grad in wanted.items()])
    return _merge_tied(_declared(layer) or _in_attributes(layer, "", set()))


def _fields(value):
    """Where an object that stands for one parameter keeps it and its gradient: two names, or None."""
    if is_array(value):
        return None
    for data, grad in FIELDS:
        if is_array(getattr(value, data, None)) and hasattr(value, grad):
            return data, grad
    return None


def _slot(name, parameter):
    data, grad = _fields(parameter)
    return Slot(name, Place(parameter, data), Place(parameter, grad), grad == "grad")


def _declared(layer):
    """Parameters that the object lists itself."""
    pairs = []
    if callable(getattr(layer, "named_parameters", None)):
        pairs = list(layer.named_parameters())
    elif callable(getattr(layer, "parameters", None)):
        listed = layer.parameters()
        if isinstance(listed, dict):
            pairs = list(listed.items())
        elif isinstance(listed, (list, tuple)):
            pairs = [(getattr(p, "name", None) or f"parameters[{i}]", p) for i, p in enumerate(listed)]
    return [_slot(name, p) for name, p in pairs if _fields(p) and differentiable(getattr(p, _fields(p)[0]))]


def _in_attributes(holder, prefix, seen):
    """Parameters in the attributes of an object and of the objects in them."""
    if id(holder) in seen or not hasattr(holder, "__dict__"):
        return []
    seen.add(id(holder))
    attributes, slots = vars(holder), []
    for name, value in list(attributes.items()):
        path = prefix + name
        if _fields(value):
            slots.append(_slot(path, value))
        elif differentiable(value):
            partner = _gradient_name(name, attributes)
            if partner:
                slots.append(Slot(path, Place(holder, name), Place(holder, partner), False))
        elif isinstance(value, (dict, list, tuple)):
            slots += _in_container(holder, name, value, path, seen)
        elif _is_layer(value):
            slots += _in_attributes(value, path + ".", seen)
    return slots


def _in_container(holder, name, value, path, seen):
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    if items and name in PARAMETER_CONTAINERS and any(differentiable(array) for _, array in items):
        for container in GRADIENT_CONTAINERS:
            gradients = getattr(holder, container, None)
            if isinstance(gradients, (dict, list)) and len(gradients) > 0:
                return _paired(holder, (name, items), (container, gradients), path)
    slots = []
    for key, part in items:
        inner = f"{path}.{key}" if isinstance(value, dict) else f"{path}[{key}]"
        if _fields(part):
            slots.append(_slot(inner, part))
        elif _is_layer(part):
            slots += _in_attributes(part, inner + ".", seen)
    return slots


def _paired(holder, data, gradients, path):
    """Slots for two containers side by side: `data` and `gradients` are (attribute name, contents)."""
    (attribute, items), (container, contents) = data, gradients
    slots = []
    for key, array in items:
        if not differentiable(array):
            continue
        if isinstance(contents, dict):
            partners = [k for k in (key, f"d{key}", f"d_{key}", f"grad_{key}") if k in contents]
        else:
            partners = [key] if key < len(contents) else []
        if partners:
            name = str(key) if isinstance(contents, dict) else f"{path}[{key}]"
            slots.append(Slot(name, Place(holder, attribute, key), Place(holder, container, partners[0]), False))
    return slots


def _is_layer(value):
    return callable(getattr(value, "forward", None)) and callable(getattr(value, "backward", None))


def _gradient_name(name, attributes):
    for partner in (f"d{name}", f"d_{name}", f"grad_{name}", f"{name}_grad", f"g_{name}", f"grad{name}", f"g{name}"):
        if partner in attributes and partner != name and (attributes[partner] is None or is_array(attributes[partner])):
            return partner
    return None


def _merge_tied(slots):
    """One slot for each array: names that share an array are one parameter."""
    by_array = {}
    for slot in slots:
        array = slot.get()
        key = (
            (array.__array_interface__["data"][0], array.shape, array.strides)
            if hasattr(array, "__array_interface__")
            else id(array)
        )
        if array.size and key in by_array:
            by_array[key].data += slot.data
            by_array[key].grads += slot.grads
        else:
            by_array[key if array.size else id(slot)] = slot
    return list(by_array.values())
