"""One trial: a subject with its inputs and parameters at hand in float64, ready to be run, disturbed and put back."""

import copy
from dataclasses import dataclass

import numpy as np

from ..backend import array_module
from .adapters import adapt
from .trees import differentiable, is_array, leaves, rebuild
from .walk import sublayers

CHECK_DTYPE = "float64"


@dataclass(eq=False)
class Watched:
    """An array that is differentiated: an input (by its number among the leaves) or a parameter (by its slot)."""

    name: str
    kind: str
    leaf: int | None = None
    slot: object = None


class Trial:
    """Runs a subject on copies of the inputs and keeps the books on every array that takes part.

    `arrays` are the `Watched` ones: float inputs, then parameters. `value(w)` and `place(w, array)` read and write
    them, `forward()` gives the list of outputs, `gradients(dys)` a dictionary name -> gradient (None where there is
    none). Use it as a context manager: on leaving, everything about the subject is put back bit for bit.
    """

    def __init__(self, subject, args, kwargs, *, parameters=None, dtype=CHECK_DTYPE, reseed=None):
        self.subject = adapt(subject, parameters)
        self.layer = getattr(self.subject, "layer", None)
        self.dtype, self.reseed = np.dtype(dtype), reseed
        self.args, self.kwargs = args, kwargs
        given = leaves(tuple(args)) + leaves(kwargs)
        names = self.subject.input_names(len(args))
        self.names = [name for value, label in zip(args, names, strict=True) for name, _ in leaves(value, label)]
        self.names += [name for name, _ in leaves(kwargs)]
        self.inputs = [self._working_copy(array) for _, array in given]
        self.forwards = 0
        self.slots, self.saved, self.attributes, self.held = [], [], [], {}
        self._astyped = None
        self.problems = []

    def _working_copy(self, array):
        return array.astype(self.dtype) if differentiable(array) else array.copy()

    def __enter__(self):
        self._to_check_dtype()
        return self

    def __exit__(self, *exc):
        self._put_back()
        return False

    # ---- the subject's own arrays

    def _to_check_dtype(self):
        """Bring the parameters that can already be found to the dtype of the check."""
        holders = [] if self.layer is None else [self.layer, *(part for _, part in sublayers(self.layer))]
        self.attributes = [(holder, dict(vars(holder))) for holder in holders if hasattr(holder, "__dict__")]
        self.held = self.snapshot()
        slots = self.subject.parameters()
        self.saved = [
            (slot, slot.get(), slot.get().copy(), [(place, place.get()) for place in slot.grads]) for slot in slots
        ]
        others = [slot for slot in slots if slot.get().dtype != self.dtype]
        if others and callable(getattr(self.layer, "astype", None)):
            self._astyped = others[0].get().dtype
            self.layer.astype(self.dtype.name)
        for slot in slots:
            self._convert(slot)
        self.slots = slots
        self.clear_gradients()

    def snapshot(self):
        """Copy every float array in the attributes of the subject: {place: (array, copy)}."""
        found = {}
        for holder, _ in self.attributes:
            for attribute, value in vars(holder).items():
                items = (
                    value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
                )
                for key, array in [(None, value), *items]:
                    if differentiable(array):
                        found[id(holder), attribute, key] = array, array.copy()
        return found

    def find_arrays(self):
        """List the arrays to differentiate. Call after one forward and backward: some classes make `dW` only then.

        An array that forward replaces is a cache (`self.x` beside `self.dx`), no parameter.
        """
        before = {slot.name: id(slot.get()) for slot in self.subject.parameters()}
        self.inputs = [array.copy() for array in self.inputs]
        self.forward()
        self.slots = [slot for slot in self.subject.parameters() if before.get(slot.name) == id(slot.get())]
        known = {slot.name for slot, *_ in self.saved}
        for slot in self.slots:
            if slot.name not in known:
                self.saved.append((slot, slot.get(), slot.get().copy(), [(place, place.get()) for place in slot.grads]))
                self._convert(slot)
        self.arrays = [
            Watched(name, "input", leaf=i)
            for i, (name, array) in enumerate(zip(self.names, self.inputs, strict=True))
            if differentiable(array)
        ]
        taken = {w.name for w in self.arrays}
        self.arrays += [
            Watched(f"parameter {slot.name}" if slot.name in taken else slot.name, "parameter", slot=slot)
            for slot in self.slots
        ]

    def _convert(self, slot):
        array = slot.get()
        if array.dtype != self.dtype or not getattr(array.flags, "writeable", True):
            slot.set(array.astype(self.dtype))

    def _put_back(self):
        if self._astyped is not None:
            self.layer.astype(self._astyped.name)
        for slot, array, values, gradients in self.saved:
            if getattr(array.flags, "writeable", True):
                array[...] = values
            slot.set(array)
            for place, gradient in gradients:
                place.set(gradient)
        for array, values in self.held.values():
            if not identical(array, values):
                array[...] = values
        for holder, attributes in self.attributes:  # what forward and backward kept, too
            vars(holder).clear()
            vars(holder).update(attributes)

    # ---- running

    def value(self, watched):
        """The array as it is now."""
        return self.inputs[watched.leaf] if watched.slot is None else watched.slot.get()

    def place(self, watched, values):
        """Set an array: an input is replaced, a parameter is written in place, strides and all."""
        if watched.slot is None:
            self.inputs[watched.leaf] = values
        elif values.dtype == watched.slot.get().dtype:
            watched.slot.get()[...] = values
        else:
            watched.slot.set(values)

    def arguments(self, inputs=None):
        """Return (args, kwargs) built from the working inputs or from other arrays given in their order."""
        supply = iter(self.inputs if inputs is None else inputs)
        return rebuild(tuple(self.args), supply), rebuild(dict(self.kwargs), supply)

    def forward(self, inputs=None):
        """Run forward once; return its outputs as a list of arrays."""
        if self.reseed is not None:
            self.reseed()
        args, kwargs = self.arguments(inputs)
        self.forwards += 1
        with np.errstate(all="ignore"):
            return self.subject.forward(args, kwargs)

    def backward(self, dys):
        """Run backward once; return whatever it gave."""
        with np.errstate(all="ignore"):
            return self.subject.backward(dys)

    def clear_gradients(self):
        """Give every parameter a fresh gradient of zeros, writing into no array that is already there."""
        for slot in self.slots:
            array = slot.get()
            for place in slot.grads:
                if place.get() is not None or slot.accumulates:
                    place.set(array_module(array).zeros_like(array))

    def gradients(self, dys, inputs=None):
        """Run forward and backward from empty gradients; return (outputs, name -> gradient, what backward returned)."""
        self.clear_gradients()
        outputs = self.forward(inputs)
        returned = self.backward(dys)
        return outputs, {**self.input_gradients(returned), **self.parameter_gradients()}, returned

    def parameter_gradients(self):
        """Read the gradients of the parameters: copies, several gradients of one shared array added up."""
        found = {}
        for watched in self.arrays:
            if watched.slot is None:
                continue
            parts = watched.slot.gradients()
            found[watched.name] = sum(parts[1:], copy.copy(parts[0])) if parts else None
        return found

    def input_gradients(self, returned):
        """Match what backward returned with the float inputs; what is wrong with number or order goes to `problems`.

        One gradient for each input is the contract (those of arguments left out at the end may follow). A dictionary
        goes by names. Gradients of the float inputs alone are understood where their number is the same.
        """
        self.problems = []
        inputs = [w for w in self.arrays if w.slot is None]
        if isinstance(returned, dict):
            return {w.name: _copy(_from_dict(returned, w.name)) for w in inputs}
        parts = flat(returned)
        n, n_positional = len(self.inputs), len(leaves(tuple(self.args)))
        if len(parts) in (n, n_positional) or n < len(parts) <= len(self.subject.input_names(0, everything=True)):
            self.problems = [
                ("integers", name)
                for name, x, part in zip(self.names, self.inputs, parts, strict=False)
                if part is not None and not differentiable(x)
            ]
            return {w.name: _copy(parts[w.leaf]) if w.leaf < len(parts) else None for w in inputs}
        given = [part for part in parts if part is not None]
        for wanted in (inputs, [w for w in inputs if w.leaf < n_positional]):
            if len(given) == len(wanted):
                self.problems = [("short", "")]
                by_name = {w.name: _copy(part) for w, part in zip(wanted, given, strict=True)}
                return {w.name: by_name.get(w.name) for w in inputs}
        self.problems = [
            ("count", f"backward returned {len(parts)} gradients for {n} inputs ({', '.join(self.names)})")
        ]
        return {w.name: None for w in inputs}

    def draw_upstream(self, outputs, rng):
        """Draw a random upstream gradient for each output: normal, never constant, scaled to the output's size."""
        drawn = []
        for y in outputs:
            xp = array_module(y)
            if not differentiable(y):
                drawn.append(xp.zeros_like(y))
            elif y.ndim == 0 and not self.subject.takes_upstream:
                drawn.append(xp.ones_like(y))
            else:
                drawn.append(xp.asarray(rng.standard_normal(y.shape), y.dtype))
        return drawn


def flat(returned):
    """What backward returned as one flat list, None included."""
    if not isinstance(returned, (tuple, list)):
        return [returned]
    return [part for item in returned for part in flat(item)]


def _from_dict(returned, name):
    for key in (f"d{name}", f"d_{name}", f"grad_{name}", name):
        if key in returned:
            return returned[key]
    return None


def identical(a, b):
    """Say whether two arrays hold the same numbers, NaN included."""
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def _copy(value):
    return value.copy() if is_array(value) else value
