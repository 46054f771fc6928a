"""Reading one expression of NumPy code: from which entries of its inputs each entry of its result comes.

See provenance.py for what a tree is. Nothing is computed here: shapes are followed, and where that cannot be done,
because a function or an index is not known, Unknown is raised.
"""

import ast
import math
import operator

from .house_calls import CALLS
from .parts import Constant, Part, Unknown, broadcast, leaves, name_of

ALONG_ROW = {"softmax": 0, "softmax_in_place": 0, "softmax_backward": 0, "row_dots": 1}  # 1: leaves one number a row
ALONG_ROW |= {"row_sums": 1, "row_max": 1}
ONE_BY_ONE = {
    *("exp", "log", "sqrt", "tanh", "sin", "cos", "abs", "absolute", "sign", "square", "negative", "reciprocal", "erf"),
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "where", "clip", "sigmoid", "asarray", "array"),
    *("logical_and", "logical_or", "logical_not", "normal_cdf", "normal_pdf", "widen", "copy", "float"),
}
WHOLE = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}
REDUCE = ("sum", "mean", "max", "min", "var", "std", "prod", "any", "all")


class Reader:
    """Reads one expression. `result` is the shape that the whole must have: it settles a reshape to unknown sizes."""

    def __init__(self, leaf, constant, result):
        self.leaf, self.constant, self.result = leaf, constant, tuple(result)

    def part(self, node, wanted=None):
        """Return the Part or Constant of an expression; `wanted` is its shape where that is known beforehand."""
        found = self.leaf(ast.unparse(node))
        if found is not None:
            return Part(found[1], ["in", found[0]])
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise Unknown
        return method(node, wanted)

    def same(self, parts):
        """Join parts entry by entry."""
        parts = [p for p in parts if isinstance(p, Part)]
        if not parts:
            return Constant()
        shape = broadcast(*(p.shape for p in parts))
        if len(parts) == 1:
            return parts[0]
        return Part(shape, ["same", shape, [p.tree for p in parts]])

    def _constant(self, node, wanted):
        return Constant(node.value)

    def _name(self, node, wanted):
        return self._outside(node)

    def _outside(self, node):
        """A name that is no recorded array: a number, a switch, or an array that the layer keeps to itself."""
        try:
            return Constant(self.constant(ast.unparse(node)))
        except LookupError:
            return Constant()

    def _binop(self, node, wanted):
        if isinstance(node.op, ast.MatMult):
            return self.product(node.left, node.right)
        return self.same([self.part(node.left, wanted), self.part(node.right, wanted)])

    def product(self, left, right):
        """A matrix product. What one side must contract with settles a reshape on the other."""
        try:
            b = self.part(right)
            a = self.part(left, (None, b.shape[-2]) if len(b.shape) > 1 else None)
        except Unknown:
            a = self.part(left)
            b = self.part(right, (a.shape[-1], None) if len(a.shape) > 1 else None)
        if not isinstance(a, Part) or not isinstance(b, Part):
            raise Unknown
        if len(b.shape) == 1 and a.shape[-1:] == b.shape:
            kept = (*a.shape[:-1], 1)
            return self.flat(Part(kept, ["along", kept, [-1], [a.tree, b.tree]]), a.shape[:-1])
        if len(a.shape) == 1 and len(b.shape) == 2 and a.shape[0] == b.shape[0]:
            row = self.flat(a, (1, *a.shape))
            shape = (1, b.shape[1])
            return self.flat(Part(shape, ["product", shape, row.tree, b.tree]), b.shape[1:])
        if min(len(a.shape), len(b.shape)) < 2:
            raise Unknown
        if a.shape[-1] != b.shape[-2]:
            raise Unknown
        shape = (*broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        return Part(shape, ["product", shape, a.tree, b.tree])

    def _unaryop(self, node, wanted):
        return self.part(node.operand, wanted)

    def _compare(self, node, wanted):
        return self.same([self.part(p) for p in (node.left, *node.comparators)])

    def _ifexp(self, node, wanted):
        """Of `a if mask is None else b` the branch that was taken: an array that is None was not recorded."""
        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
            left = self.part(test.left)
            given = isinstance(left, Part) or left.value is not None
            return self.part(node.body if given == isinstance(test.ops[0], ast.IsNot) else node.orelse, wanted)
        value = self._outside(test).value
        if value is not None:
            return self.part(node.body if value else node.orelse, wanted)
        # A local switch: what the branch not taken reads was mostly not recorded, so the taken one finds more.
        branches = [self.part(b, wanted) for b in (node.orelse, node.body)]
        return max(branches, key=lambda p: len(leaves(p.tree)) if isinstance(p, Part) else 0)

    def _attribute(self, node, wanted):
        if node.attr == "T":
            part = self.array(node.value, wanted and tuple(reversed(wanted)))
            return self.moved(part, tuple(reversed(range(len(part.shape)))))
        return self._outside(node)

    def _subscript(self, node, wanted):
        """Slices from the beginning or from a known place, and new axes: `x[:, None]`, `P[:T]`."""
        part = self.part(node.value)
        if isinstance(part, Constant):
            return Constant()
        starts, shape, kept = self.window(node.slice, part.shape)
        out = Part(shape, ["cut", shape, starts, part.tree]) if tuple(shape) != part.shape else part
        return self.flat(out, tuple(kept)) if kept != shape else out

    def window(self, index, whole):
        """Where an index begins along each axis, how far it goes, and the shape of what it gives."""
        keys = index.elts if isinstance(index, ast.Tuple) else [index]
        dots = [i for i, k in enumerate(keys) if isinstance(k, ast.Constant) and k.value is Ellipsis]
        if dots:  # stands for as many whole axes as are missing
            given = sum(not (isinstance(k, ast.Constant) and k.value in (None, Ellipsis)) for k in keys)
            keys = [*keys[: dots[0]], *[ast.Slice()] * (len(whole) - given), *keys[dots[0] + 1 :]]
        shape, starts, kept, axes = [], [], [], iter(whole)
        for key in keys:
            if isinstance(key, ast.Constant) and key.value is None:
                kept.append(1)
                continue
            size = next(axes, None)
            if size is None:
                raise Unknown
            all_of_it = isinstance(key, ast.Slice) and key.lower is None and key.upper is None and key.step is None
            start, stop, _ = (0, size, 1) if all_of_it else self._span(key, size)
            starts.append(start)
            shape.append(stop - start)
            if isinstance(key, ast.Slice):
                kept.append(stop - start)
        rest = list(axes)
        return starts + [0] * len(rest), shape + rest, kept + rest

    def _span(self, key, size):
        if isinstance(key, ast.Slice):
            bounds = [None if k is None else self.integer(k) for k in (key.lower, key.upper, key.step)]
            start, stop, step = slice(*bounds).indices(size)
            if step != 1:
                raise Unknown
            return start, stop, step
        i = self.integer(key)
        return (i % size, i % size + 1, 1) if -size <= i < size else (0, 0, 1)

    def _call(self, node, wanted):
        name = name_of(node.func)
        if name in ONE_BY_ONE or name in ("astype", "ascontiguousarray"):
            return self._one_by_one(node, wanted)
        if name in ALONG_ROW:
            return self._along_row(node, ALONG_ROW[name])
        if name in CALLS:
            return CALLS[name](self, node, wanted)
        method = getattr(self, f"_call_{name}", None)
        if name in REDUCE:
            method = self._reduce
        if method is None:
            raise Unknown
        return method(node, wanted)

    def _operand(self, node):
        """What a method or function works on, and its further arguments: x.sum(-1) and np.sum(x, -1) alike."""
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if owner is not None and not _is_library(owner):
            return owner, node.args
        if not node.args:
            raise Unknown
        return node.args[0], node.args[1:]

    def _one_by_one(self, node, wanted):
        parts = [] if name_of(node.func) == "astype" else [a for a in node.args if not isinstance(a, ast.Starred)]
        if isinstance(node.func, ast.Attribute) and not _is_library(node.func.value):
            parts = [node.func.value, *parts]
        return self.same([self.part(p, wanted) for p in parts])

    def _along_row(self, node, one):
        parts = [p for p in map(self.part, node.args) if isinstance(p, Part)]
        if not parts:
            raise Unknown
        shape = broadcast(*(p.shape for p in parts))
        shape = (*shape[:-1], 1) if one else shape
        return Part(shape, ["along", shape, [-1], [p.tree for p in parts]])

    def _reduce(self, node, wanted):
        operand, rest = self._operand(node)
        part = self.part(operand)
        if isinstance(part, Constant):
            return Constant()
        options = {k.arg: k.value for k in node.keywords}
        axis = options.get("axis", rest[0] if rest else None)
        axes = range(len(part.shape)) if axis is None else self._integers(axis)
        axes = sorted({a % len(part.shape) - len(part.shape) for a in axes}) if part.shape else []
        keep = "keepdims" in options and self.value(options["keepdims"])
        kept = tuple(1 if i - len(part.shape) in axes else n for i, n in enumerate(part.shape))
        out = Part(kept, ["along", kept, axes, [part.tree]])
        left = tuple(n for i, n in enumerate(part.shape) if i - len(part.shape) not in axes)
        return out if keep else self.flat(out, left)

    def _call_matmul(self, node, wanted):
        operand, rest = self._operand(node)
        return self.product(operand, rest[0])

    _call_dot = _call_matmul

    def _call_broadcast_to(self, node, wanted):
        operand, rest = self._operand(node)
        shape = tuple(self._integers(rest[0]))
        return Part(shape, ["same", shape, [self.array(operand).tree]])

    def _call_concatenate(self, node, wanted):
        """Parts side by side: a list, or a tuple in which `*through` stands for recorded parts through[0], [1] .."""
        listed = node.args[0].elts if isinstance(node.args[0], (ast.List, ast.Tuple)) else [ast.Starred(node.args[0])]
        parts = [
            p for n in listed for p in (self._parts_of(n.value) if isinstance(n, ast.Starred) else [self.array(n)])
        ]
        return self.joined(parts, self._axis(node, len(parts[0].shape)))

    def _call_stack(self, node, wanted):
        parts = self._parts_of(node.args[0])
        axis = self._axis(node, len(parts[0].shape) + 1)
        return self.joined([self.flat(p, (*p.shape[:axis], 1, *p.shape[axis:])) for p in parts], axis)

    def _axis(self, node, n):
        given = [k.value for k in node.keywords if k.arg == "axis"] or node.args[1:2]
        return (self.integer(given[0]) if given else 0) % n

    def _parts_of(self, node):
        """The recorded parts of a tuple or list: ends[0], ends[1] .."""
        found, name = [], ast.unparse(node)
        while (part := self.leaf(f"{name}[{len(found)}]")) is not None:
            found.append(Part(part[1], ["in", part[0]]))
        return found or [self.array(node)]  # a list of one is recorded as that one

    def joined(self, parts, axis):
        """Parts one after another along an axis."""
        first = parts[0].shape
        shape = (*first[:axis], sum(p.shape[axis] for p in parts), *first[axis + 1 :])
        return Part(shape, ["join", shape, axis, [p.tree for p in parts]])

    def _call_take(self, node, wanted):
        operand, rest = self._operand(node)
        table, ids = self.array(operand), self.array(rest[0])
        shape = (*ids.shape, *table.shape[1:])
        return Part(shape, ["rows", shape, table.tree, ids.tree])

    def _call_reshape(self, node, wanted):
        operand, rest = self._operand(node)
        part = self.array(operand)
        try:
            sizes = [n for r in rest for n in self._integers(r)]
        except Unknown:
            sizes = [] if wanted is None else list(wanted)
        size = math.prod(part.shape)
        missing = [i for i, n in enumerate(sizes) if n in (-1, None)]
        if len(missing) == 1:
            known = math.prod(n for n in sizes if n not in (-1, None))
            sizes[missing[0]] = size // known if known else 0
        if None in sizes or math.prod(sizes) != size:
            raise Unknown
        return self.flat(part, tuple(sizes))

    def _call_swapaxes(self, node, wanted):
        operand, rest = self._operand(node)
        part = self.array(operand)
        axes = list(range(len(part.shape)))
        i, j = (self.integer(r) for r in rest)
        axes[i], axes[j] = axes[j], axes[i]
        return self.moved(part, tuple(axes))

    def _call_transpose(self, node, wanted):
        operand, rest = self._operand(node)
        part = self.array(operand)
        axes = [n for r in rest for n in self._integers(r)] or list(reversed(range(len(part.shape))))
        return self.moved(part, tuple(a % len(part.shape) for a in axes))

    def flat(self, part, shape):
        """The part with another shape."""
        return part if part.shape == shape else Part(shape, ["flat", shape, part.tree])

    def moved(self, part, axes):
        """The part with its axes in another order."""
        shape = tuple(part.shape[a] for a in axes)
        return Part(shape, ["move", shape, axes, part.tree])

    def array(self, node, wanted=None):
        part = self.part(node, wanted)
        if not isinstance(part, Part):
            raise Unknown
        return part

    def value(self, node):
        value = node.value if isinstance(node, ast.Constant) else self._outside(node).value
        if value is None:
            raise Unknown
        return value

    def integer(self, node):
        (value,) = self._integers(node)
        return value

    def _integers(self, node):
        """Whole numbers from -1, (0, 1), self.d_in, x.shape, *x.shape[:-1]."""
        if isinstance(node, ast.Starred):
            return self._integers(node.value)
        if isinstance(node, (ast.Tuple, ast.List)):
            return [n for e in node.elts for n in self._integers(e)]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return [-self.integer(node.operand)]
        if isinstance(node, ast.Attribute) and node.attr == "shape":
            return list(self.array(node.value).shape)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            sizes = self._integers(node.value)
            if not isinstance(node.slice, ast.Slice):
                return [sizes[self.integer(node.slice)]]
            start, stop = (None if k is None else self.integer(k) for k in (node.slice.lower, node.slice.upper))
            return sizes[start:stop]
        if isinstance(node, ast.BinOp) and type(node.op) in WHOLE:
            return [WHOLE[type(node.op)](self.integer(node.left), self.integer(node.right))]
        value = self.value(node)
        if isinstance(value, (tuple, list)):
            return list(value)
        if not isinstance(value, int) and not hasattr(value, "__index__"):
            raise Unknown
        return [int(value)]


def _is_library(node):
    if isinstance(node, ast.Call):
        return name_of(node.func) == "array_module"
    return isinstance(node, ast.Name) and node.id in ("np", "xp", "numpy", "cupy", "math")
