"""Reading one expression of NumPy code: from which entries of its inputs each entry of its result comes.

See provenance.py for what a tree is. Nothing is computed here: shapes are followed, and where that cannot be done,
because a function or an index is not known, Unknown is raised.
"""

import ast
import math

ALONG_ROW = {"softmax": 0, "softmax_in_place": 0, "softmax_backward": 0, "row_dots": 1}  # 1: leaves one number a row
ALONG_ROW |= {"row_sums": 1, "row_max": 1}
ONE_BY_ONE = {
    *("exp", "log", "sqrt", "tanh", "sin", "cos", "abs", "absolute", "sign", "square", "negative", "reciprocal", "erf"),
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "where", "clip", "sigmoid", "asarray", "array"),
    *("logical_and", "logical_or", "logical_not", "normal_cdf", "normal_pdf", "widen", "copy", "float"),
}
REDUCE = ("sum", "mean", "max", "min", "var", "std", "prod", "any", "all")


class Unknown(Exception):
    """The statement has a part that this file cannot read."""


class Constant:
    """Something without a place: a number, a string, a switch. `value` where it is known."""

    shape = ()

    def __init__(self, value=None):
        self.value = value


class Part:
    """A node of the tree with its shape."""

    def __init__(self, shape, tree):
        self.shape, self.tree = tuple(shape), tree


def broadcast(*shapes):
    """The shape that NumPy's rules give; Unknown where they give none."""
    out = []
    for i in range(1, max(map(len, shapes), default=0) + 1):
        sizes = {s[-i] for s in shapes if len(s) >= i} - {1}
        if len(sizes) > 1:
            raise Unknown
        out.insert(0, sizes.pop() if sizes else 1)
    return tuple(out)


def name_of(function):
    """The last name of what is called: "sum" in x.sum(-1)."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)


def leaves(tree):
    """The numbers of the inputs that a tree ends in."""
    if tree[0] == "in":
        return {tree[1]}
    parts = [[x] if x and isinstance(x[0], str) else x for x in tree[2:] if isinstance(x, list)]
    return set().union(*(leaves(p) for x in parts for p in x if isinstance(p, list)))


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
            return self.product(node, wanted)
        return self.same([self.part(node.left, wanted), self.part(node.right, wanted)])

    def product(self, node, wanted):
        """A matrix product. What one side must contract with settles a reshape on the other."""
        try:
            b = self.part(node.right)
            a = self.part(node.left, (None, b.shape[-2]) if len(b.shape) > 1 else None)
        except Unknown:
            a = self.part(node.left)
            b = self.part(node.right, (a.shape[-1], None) if len(a.shape) > 1 else None)
        if not isinstance(a, Part) or not isinstance(b, Part):
            raise Unknown
        if len(a.shape) == len(b.shape) == 1 and a.shape == b.shape:
            return self.flat(Part((1,), ["along", (1,), [-1], [a.tree, b.tree]]), ())
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
            part = self._array(node.value, wanted and tuple(reversed(wanted)))
            return self.moved(part, tuple(reversed(range(len(part.shape)))))
        return self._outside(node)

    def _subscript(self, node, wanted):
        """Slices from the beginning or from a known place, and new axes: `x[:, None]`, `P[:T]`."""
        part = self.part(node.value)
        if isinstance(part, Constant):
            return Constant()
        keys = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if any(isinstance(k, ast.Constant) and k.value is Ellipsis for k in keys):
            raise Unknown
        shape, starts, kept, axes = [], [], [], iter(part.shape)
        for key in keys:
            if isinstance(key, ast.Constant) and key.value is None:
                kept.append(1)
                continue
            size = next(axes, None)
            if size is None:
                raise Unknown
            whole = isinstance(key, ast.Slice) and key.lower is None and key.upper is None and key.step is None
            start, stop, _ = (0, size, 1) if whole else self._span(key, size)
            starts.append(start)
            shape.append(stop - start)
            if isinstance(key, ast.Slice):
                kept.append(stop - start)
        rest = list(axes)
        shape, starts, kept = shape + rest, starts + [0] * len(rest), kept + rest
        out = Part(shape, ["cut", shape, starts, part.tree]) if tuple(shape) != part.shape else part
        return self.flat(out, tuple(kept)) if kept != shape else out

    def _span(self, key, size):
        if isinstance(key, ast.Slice):
            bounds = [None if k is None else self._integer(k) for k in (key.lower, key.upper, key.step)]
            start, stop, step = slice(*bounds).indices(size)
            if step != 1:
                raise Unknown
            return start, stop, step
        i = self._integer(key)
        return (i % size, i % size + 1, 1) if -size <= i < size else (0, 0, 1)

    def _call(self, node, wanted):
        name = name_of(node.func)
        if name in ONE_BY_ONE or name in ("astype", "ascontiguousarray"):
            return self._one_by_one(node, wanted)
        if name in ALONG_ROW:
            return self._along_row(node, ALONG_ROW[name])
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
        keep = "keepdims" in options and self._value(options["keepdims"])
        kept = tuple(1 if i - len(part.shape) in axes else n for i, n in enumerate(part.shape))
        out = Part(kept, ["along", kept, axes, [part.tree]])
        left = tuple(n for i, n in enumerate(part.shape) if i - len(part.shape) not in axes)
        return out if keep else self.flat(out, left)

    def _call_column_sums(self, node, wanted):
        part = self._array(node.args[0])
        kept = (1, *part.shape[1:])
        return self.flat(Part(kept, ["along", kept, [-len(part.shape)], [part.tree]]), part.shape[1:])

    def _call_take(self, node, wanted):
        operand, rest = self._operand(node)
        table, ids = self._array(operand), self._array(rest[0])
        shape = (*ids.shape, *table.shape[1:])
        return Part(shape, ["rows", shape, table.tree, ids.tree])

    def _call_add_rows(self, node, wanted):
        _, ids, rows = map(self._array, node.args)
        return Part(self.result, ["gather", self.result, ids.tree, rows.tree])

    def _call_reshape(self, node, wanted):
        operand, rest = self._operand(node)
        part = self._array(operand)
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
        part = self._array(operand)
        axes = list(range(len(part.shape)))
        i, j = (self._integer(r) for r in rest)
        axes[i], axes[j] = axes[j], axes[i]
        return self.moved(part, tuple(axes))

    def _call_transpose(self, node, wanted):
        operand, rest = self._operand(node)
        part = self._array(operand)
        axes = [n for r in rest for n in self._integers(r)] or list(reversed(range(len(part.shape))))
        return self.moved(part, tuple(a % len(part.shape) for a in axes))

    def _call_split_heads(self, node, wanted):
        part = self._array(node.args[0])
        n = wanted[1] if wanted and len(wanted) == 4 else self._integer(node.args[1])
        b, t, d = part.shape
        return self.moved(self.flat(part, (b, t, n, d // n)), (0, 2, 1, 3))

    def _call_merge_heads(self, node, wanted):
        part = self.moved(self._array(node.args[0]), (0, 2, 1, 3))
        return self.flat(part, (*part.shape[:2], part.shape[2] * part.shape[3]))

    def _call_repeat_heads(self, node, wanted):
        part, n = self._array(node.args[0]), self._integer(node.args[1])
        shape = (part.shape[0], part.shape[1] * n, *part.shape[2:])
        return part if n == 1 else Part(shape, ["repeat", shape, 1, n, part.tree])

    def _call_sum_repeated_heads(self, node, wanted):
        part, n = self._array(node.args[0]), self._integer(node.args[1])
        if n == 1:
            return part
        b, h, *rest = part.shape
        groups = self.flat(part, (b, h // n, n, *rest))
        kept = (b, h // n, 1, *rest)
        return self.flat(Part(kept, ["along", kept, [-1 - len(rest)], [groups.tree]]), (b, h // n, *rest))

    def flat(self, part, shape):
        """The part with another shape."""
        return part if part.shape == shape else Part(shape, ["flat", shape, part.tree])

    def moved(self, part, axes):
        """The part with its axes in another order."""
        shape = tuple(part.shape[a] for a in axes)
        return Part(shape, ["move", shape, axes, part.tree])

    def _array(self, node, wanted=None):
        part = self.part(node, wanted)
        if not isinstance(part, Part):
            raise Unknown
        return part

    def _value(self, node):
        value = node.value if isinstance(node, ast.Constant) else self._outside(node).value
        if value is None:
            raise Unknown
        return value

    def _integer(self, node):
        (value,) = self._integers(node)
        return value

    def _integers(self, node):
        """Whole numbers from -1, (0, 1), self.d_in, x.shape, *x.shape[:-1]."""
        if isinstance(node, ast.Starred):
            return self._integers(node.value)
        if isinstance(node, (ast.Tuple, ast.List)):
            return [n for e in node.elts for n in self._integers(e)]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return [-self._integer(node.operand)]
        if isinstance(node, ast.Attribute) and node.attr == "shape":
            return list(self._array(node.value).shape)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            sizes = self._integers(node.value)
            if not isinstance(node.slice, ast.Slice):
                return [sizes[self._integer(node.slice)]]
            start, stop = (None if k is None else self._integer(k) for k in (node.slice.lower, node.slice.upper))
            return sizes[start:stop]
        value = self._value(node)
        if isinstance(value, (tuple, list)):
            return list(value)
        if not isinstance(value, int) and not hasattr(value, "__index__"):
            raise Unknown
        return [int(value)]


def _is_library(node):
    if isinstance(node, ast.Call):
        return name_of(node.func) == "array_module"
    return isinstance(node, ast.Name) and node.id in ("np", "xp", "numpy", "cupy", "math")
