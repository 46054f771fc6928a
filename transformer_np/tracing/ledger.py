"""The ledger of a trace: what each layer owns, keeps, and computes, counted, and by its formula."""

import math
from dataclasses import dataclass

from ..checking.trees import is_array
from ..module import Module, Parameter
from .costs import COSTS
from .table import as_html, as_text

HEADINGS = ("layer", "kind", "parameters", "bytes kept", "of them new", "FLOPs forward", "FLOPs backward", "formulas")


@dataclass(frozen=True)
class Entry:
    """One layer's line, or the sum of several.

    parameters: the learned numbers it owns, those that it shares with a layer before it left out. kept: bytes that it
    holds for backward. new: the bytes among them that no layer before it holds too. forward, backward: floating-point
    operations of the matrix products that ran. formulas: {"forward" | "backward" | "kept": (formula, value)}, the
    last in bytes.
    """

    name: str
    kind: str
    parameters: int
    kept: int
    new: int
    forward: int
    backward: int
    formulas: dict

    @property
    def differs(self):
        """The names of the counts that are not what their formula says."""
        return tuple(name for name, (_, value) in self.formulas.items() if value != getattr(self, name))

    def cells(self):
        """The line as text."""
        numbers = (f"{n:,}" for n in (self.parameters, self.kept, self.new, self.forward, self.backward))
        told = (f"{formula}{' (not so here)' if name in self.differs else ''}" for name, (formula, _) in self._told())
        return (self.name, self.kind, *numbers, "; ".join(told))

    def _told(self):
        return ((name, self.formulas[name]) for name in ("forward", "backward", "kept") if name in self.formulas)


@dataclass(frozen=True)
class Held:
    """What one layer owned and kept at the end of forward; `arrays` are (where its memory is, bytes there, bytes)."""

    name: str
    layer: object
    parameters: int
    arrays: tuple
    formulas: dict


class Ledger:
    """What `trace.ledger()` returns: `entries`, a line for each layer, in order; `total`; ledger["encoder.layers.0"].

    It prints as a table.
    """

    def __init__(self, held, products):
        seen, self.entries = set(), []
        flops = _flops(products)
        for h in held:
            new = sum(n for place, n, _ in _once(h.arrays) if place not in seen)
            seen |= {place for place, _, _ in h.arrays}
            counts = (flops.pop((phase, h.name, type(h.layer).__name__), 0) for phase in ("forward", "backward"))
            kept = sum(n for _, _, n in h.arrays)
            self.entries.append(Entry(h.name, type(h.layer).__name__, h.parameters, kept, new, *counts, h.formulas))

    def __getitem__(self, name):
        """The sum over a layer and all inside it. Raises KeyError for a layer that there is not."""
        inside = [e for e in self.entries if name in ("", e.name) or e.name.startswith(name + ".")]
        if not inside:
            raise KeyError(f"no layer is called {name!r}; there are {', '.join(e.name for e in self.entries[:8])} ..")
        kind = next((e.kind for e in inside if e.name == name), "")
        return Entry(name or "total", kind, *(sum(getattr(e, n) for e in inside) for n in NUMBERS), {})

    @property
    def total(self):
        """The sum over all layers; "bytes kept" counts an array once for each layer that holds it, "new" once."""
        return self[""]

    def _lines(self):
        told = [e for e in self.entries if any(getattr(e, n) for n in NUMBERS)]
        return [entry.cells() for entry in (*told, self.total)]

    def __str__(self):
        return as_text("", HEADINGS, self._lines())

    __repr__ = __str__

    def _repr_html_(self):
        return as_html("", HEADINGS, self._lines(), words=2)


NUMBERS = ("parameters", "kept", "new", "forward", "backward")


def take_stock(objects, records):
    """Return [Held] of every layer, between forward and backward. `objects`: {id: (dotted name, object)}."""
    seen, held = set(), []
    shapes = _argument_shapes(records)
    for name, layer in objects.values():
        if name == "loss" or name.startswith("loss."):
            continue
        own = [p for p in vars(layer).values() if isinstance(p, Parameter)] if hasattr(layer, "__dict__") else []
        fresh = [p for p in own if id(p) not in seen]
        seen |= {id(p) for p in own}
        arrays = tuple((_memory(a), _base(a).nbytes, a.nbytes) for a in {id(a): a for a in _kept(layer, own)}.values())
        held.append(Held(name, layer, sum(p.size for p in fresh), arrays, _formulas(layer, shapes.get(name, {}))))
    return held


def _formulas(layer, shapes):
    """{"forward" | "backward" | "kept": (formula, value)} of a layer of this package that took arguments so shaped."""
    kind = type(layer).__name__
    if kind not in COSTS or not type(layer).__module__.startswith("transformer_np.") or not shapes:
        return {}
    found = dict(zip(("forward", "backward", "kept"), COSTS[kind](layer, shapes["shapes"]), strict=True))
    if found["kept"] is not None:
        formula, n = found["kept"]
        size = shapes["itemsize"]
        found["kept"] = (f"{size} ({formula}) bytes", size * n)
    return {name: told for name, told in found.items() if told is not None}


def _argument_shapes(records):
    """{dotted name: {"shapes": {argument: shape}, "itemsize": bytes a number}} of every layer's last forward."""
    found = {}
    for r in records:
        if r.role == "argument" and r.method == "forward":
            layer = found.setdefault(r.module, {"shapes": {}, "itemsize": r.value.itemsize})
            layer["shapes"][r.variable] = r.value.shape
    return found


def _kept(layer, own):
    """The arrays a layer keeps for backward; of a stranger's class, every array in its attributes but parameters."""
    if isinstance(layer, Module):
        return _arrays(layer._saved)
    own = {id(value) for name, value in vars(layer).items() if f"d{name}" in vars(layer)}
    return [a for a in _arrays(list(vars(layer).values())) if id(a) not in own] if hasattr(layer, "__dict__") else []


def _arrays(value):
    if is_array(value):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [a for part in value for a in _arrays(part)] if isinstance(value, (tuple, list)) else []


def _base(array):
    while getattr(array, "base", None) is not None and is_array(array.base):
        array = array.base
    return array


def _memory(array):
    return id(_base(array))


def _once(arrays):
    return {place: (place, n, m) for place, n, m in arrays}.values()


def _flops(products):
    """{(phase, dotted name, class): floating-point operations} of the products that ran."""
    found = {}
    for phase, name, kind, (left, right), _ in products:
        if left is None or right is None:
            continue
        left, right = left if len(left) > 1 else (1, *left), right if len(right) > 1 else (*right, 1)
        *batch, n, k = left
        *other, _, m = right
        widest = max(math.prod(batch), math.prod(other))
        key = ("backward" if phase == "backward" else "forward", name, kind)
        found[key] = found.get(key, 0) + 2 * widest * n * k * m
    return found
