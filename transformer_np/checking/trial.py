"""One trial: a subject with its inputs and parameters at hand in float64, ready to be run, disturbed and put back."""

import copy
from dataclasses import dataclass

import numpy as np

from ..backend import array_module
from .adapters import adapt
from .trees import differentiable, is_array, leaves, rebuild

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

    `arrays` are the `Watched` ones: float inputs, then parameters. `value(w)` and `place(w, array)` read and write them,
    `forward()` gives the list of outputs, `gradients(dys)` a dictionary name -> gradient (None where there is none).
    Use it as a context manager: on leaving, everything about the subject is put back bit for bit.
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
        self.slots, self.saved = [], []
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
        slots = self.subject.parameters()
        self.saved = [(slot, slot.get(), slot.get().copy(), [(place, place.get()) for place in slot.grads])
                      for slot in slots]
        others = [slot for slot in slots if slot.get().dtype != self.dtype]
        if others and callable(getattr(self.layer, "astype", None)):
            self._astyped = others[0].get().dtype
            self.layer.astype(self.dtype.name)
        for slot in slots:
            array = slot.get()
            if array.dtype != self.dtype or not array.flags.writeable:
                slot.set(array.astype(self.dtype))
        self.slots = slots

    def find_arrays(self):
        """List the arrays to differentiate. Call after one forward and backward: some classes make `dW` only then."""
        known = {id(place.holder): None for slot in self.slots for place in slot.data}
        before = {slot.name: id(slot.get()) for slot in self.subject.parameters()}
        self.inputs = [array.copy() for array in self.inputs]
        self.forward()
        steady = [slot for slot in self.subject.parameters() if before.get(slot.name) == id(slot.get())]
        saved_names = {slot.name for slot, *_ in self.saved}
        for slot in steady:  # parameters that came to light with the first backward
            if slot.name not in saved_names:
                self.saved.append((slot, slot.get(), slot.get().copy(), [(place, place.get()) for place in slot.grads]))
                if slot.get().dtype != self.dtype:
                    slot.set(slot.get().astype(self.dtype))
        del known
        self.slots = steady
        self.arrays = [Watched(name, "input", leaf=i) for i, (name, array) in
                       enumerate(zip(self.names, self.inputs, strict=True)) if differentiable(array)]
        taken = {w.name for w in self.arrays}
        self.arrays += [Watched(f"parameter {s.name}" if s.name in taken else s.name, "parameter", slot=s) for s in steady]

    def _put_back(self):
        if self._astyped is not None:
            self.layer.astype(self._astyped.name)
        for slot, array, values, gradients in self.saved:
            if array.flags.writeable:
                array[...] = values
            slot.set(array)
            for place, gradient in gradients:
                place.set(gradient)
        if callable(getattr(self.layer, "forget", None)):
            self.layer.forget()

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
        """Match what backward returned with the inputs; problems of number or order go to `self.problems`."""
        self.problems = []
        inputs = [w for w in self.arrays if w.slot is None]
        parts, n = self._returned_parts(returned), len(self.inputs)
        matched = None
        positional = len(leaves(tuple(self.args)))
        for count in (n, positional):
            if len(parts) == count and matched is None:
                matched = {w.name: parts[w.leaf] for w in inputs if w.leaf < count}
                extra = [i for i in range(count) if parts[i] is not None and not differentiable(self.inputs[i])]
                wanted = [w for w in inputs if w.leaf < count]
                given = [p for p in parts if p is not None]
                if extra and len(given) == len(wanted):  # the order is right once the None is left out
                    self.problems += [("integers", self.names[i]) for i in extra]
                else:
                    self.problems += [("integers", self.names[i]) for i in extra]
        if matched is None and isinstance(returned, dict):
            matched = {w.name: self._from_dict(returned, w.name) for w in inputs}
        if matched is None:
            given = [part for part in parts if part is not None]
            for wanted in (inputs, [w for w in inputs if w.leaf < positional]):
                if len(given) == len(wanted) and matched is None:
                    matched = {w.name: part for w, part in zip(wanted, given, strict=True)}
                    if n > 1 and len(wanted) < n:
                        self.problems.append(("short", ""))
        if matched is None:
            self.problems.append(("count", f"backward returned {len(parts)} gradients for {len(self.inputs)} inputs "
                                           f"({', '.join(self.names)})"))
            matched = {w.name: part for w, part in zip(inputs, [p for p in parts if p is not None], strict=False)}
        return {w.name: _copy(matched.get(w.name)) for w in inputs}

    def _returned_parts(self, returned):
        if isinstance(returned, dict):
            return []
        if not isinstance(returned, (tuple, list)):
            return [returned]
        parts = []
        for part in returned:
            parts += self._returned_parts(part) if isinstance(part, (tuple, list)) else [part]
        return parts

    @staticmethod
    def _from_dict(returned, name):
        for key in (f"d{name}", f"d_{name}", f"grad_{name}", name):
            if key in returned:
                return returned[key]
        return None

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


def _copy(value):
    return value.copy() if is_array(value) else value
