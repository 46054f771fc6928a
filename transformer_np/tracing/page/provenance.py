"""Where each number of a statement's result comes from, read off the statement itself.

`read(source, ...)` turns `scores = (q * scale) @ k.swapaxes(-1, -2)` into a small tree that the page walks backwards:
an entry of a product comes from a row and a column, one of a softmax from its whole row, one of a sum from the same
place in each term. Nothing in it knows a layer: a class of the reader's own is read in the same way. A statement with
something unknown in it has no tree (None).

A tree is nested lists, as JSON has them; every node but a leaf begins with its kind and its shape:
    ["in", i]                       input number i of the statement
    ["same", shape, parts]          each entry from the same place in every part (sizes of 1 serve all)
    ["product", shape, a, b]        a matrix product: row of a, column of b
    ["move", shape, axes, part]     axes in another order: axis j of the result is axis axes[j] of the part
    ["flat", shape, part]           a reshape: the same numbers in the same order
    ["along", shape, axes, parts]   from all entries along these axes (negative numbers) of every part
    ["rows", shape, table, ids]     a look-up: row ids[n] of the table
    ["gather", shape, ids, rows]    its backward: row v gathers rows[n] wherever ids[n] is v
    ["cut", shape, starts, part]    a slice that begins at starts
    ["repeat", shape, axis, n, part]    every entry n times in a row
    ["join", shape, axis, parts]    parts one after another along an axis
    ["nothing", shape]              zeros, made from nothing
    ["turn", shape, axis, part]     an axis from its end
    ["into", shape, starts, window, part, before]    a part, `window` its shape, put in at starts; else as before
"""

import ast

from .expressions import Reader
from .parts import Part, Unknown, name_of


def read(source, variable, leaf, constant, shape):
    """Return the tree of the array that a statement gives to `variable`, or returns; None where it cannot be read.

    leaf(expression) gives (i, shape) of the input that this part of the source stands for, such as `q`,
    `self.weight.data` or `self.norm1(x)`, or None. constant(expression) gives the value of a part that is no array,
    such as `self.d_in`, or raises LookupError. shape is that of the array.
    """
    source = source.strip()
    try:
        statement = ast.parse(f"{source} pass" if source.endswith(":") else source).body[0]
    except (SyntaxError, IndexError):
        return None
    reader = Reader(leaf, constant, shape)
    return _tree_of(reader, lambda: _part_of(statement, variable, reader))


def read_expression(node, leaf, constant, shape):
    """The same for an expression, as it stands among the arguments of a call."""
    reader = Reader(leaf, constant, shape)
    return _tree_of(reader, lambda: reader.part(node, reader.result))


def _part_of(statement, variable, reader):
    part = _put(statement, reader) or _one_of_several(statement, variable, reader)
    if part is None:
        value = _value_of(statement, variable)
        part = None if value is None else reader.part(value, reader.result)
    return part


def _tree_of(reader, read_it):
    try:
        part = read_it()
    except (Unknown, AttributeError, IndexError, TypeError, ValueError):  # a reader's source may be anything
        return None
    return part.tree if isinstance(part, Part) and part.shape == reader.result else None


def _put(statement, reader):
    """What `x[i:j] = ..` and `x[i:j] += ..` make of x; None for another statement."""
    added = isinstance(statement, ast.AugAssign)
    if not added and not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
        return None
    target = statement.target if added else statement.targets[0]
    if not isinstance(target, ast.Subscript):
        return None
    starts, window, kept = reader.window(target.slice, reader.result)
    found = reader.leaf(ast.unparse(target.value))
    before = None if found is None else ["in", found[0]]
    put = reader.part(statement.value, tuple(kept))
    shape = tuple(kept)
    if isinstance(put, Part):
        put = Part(shape, ["same", shape, [put.tree]]) if put.shape != shape else put
    if added and before is not None:
        old = reader.flat(Part(window, ["cut", window, starts, before]), shape)
        put = reader.same([old, put])
    if not isinstance(put, Part):
        return None
    inside = reader.flat(put, tuple(window))
    return Part(reader.result, ["into", reader.result, starts, window, inside.tree, before])


# What functions of the house that return several arrays make each of them of.
SEVERAL = {
    "scores_of": ("softmax({0})", "row_sums({0})[..., 0]", "row_sums({0})[..., 0]"),
    "outputs": ("batch_first(y)", "{0}[-1]"),  # of a recurrent layer, which calls its outputs y before they are turned
}


def _one_of_several(statement, variable, reader):
    """What `a, b = f(x)` makes of x for one of its targets, where f is known here; None for another statement."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    call = getattr(statement, "iter" if isinstance(statement, ast.For) else "value", None)
    if not isinstance(target, ast.Tuple) or not isinstance(call, ast.Call):
        return None
    names = [t.id if isinstance(t, ast.Name) else None for t in target.elts]
    if variable not in names:
        return None
    k, name = names.index(variable), name_of(call.func)
    if name == "enumerate":  # for t, a in enumerate(x)
        return reader.part(ast.Subscript(call.args[0], target.elts[0], ast.Load()))
    if name in SEVERAL:
        return reader.part(ast.parse(SEVERAL[name][k].format(ast.unparse(call.args[0])), mode="eval").body)
    while name == "open_gates" and isinstance(call.args[0], ast.Call):
        call, name = call.args[0], name_of(call.args[0].func)
    if name == "_parts":  # the gates of a recurrent layer, side by side
        part = reader.part(call.args[0])
        width = reader.result[-1]
        return Part(reader.result, ["cut", reader.result, [*[0] * (len(part.shape) - 1), k * width], part.tree])
    return None


def _value_of(statement, variable):
    """The expression that a statement gives to a variable: of `a, b = x, y` that beside it; None where it has none."""
    value = getattr(statement, "value", None)
    if isinstance(statement, ast.AugAssign):
        return ast.copy_location(ast.BinOp(statement.target, statement.op, statement.value), statement)
    if isinstance(statement, ast.Expr) and isinstance(value, ast.Call) and name_of(value.func) == "accumulate":
        return value.args[0]
    if isinstance(value, ast.Tuple) and variable.endswith("]") and isinstance(statement, ast.Assign):
        return value.elts[int(variable.rpartition("[")[2][:-1])]
    if isinstance(value, ast.Tuple):
        targets = getattr(statement.targets[0], "elts", [None]) if isinstance(statement, ast.Assign) else []
        names = [t.id if isinstance(t, ast.Name) else None for t in targets]
        if variable in names and len(names) == len(value.elts):
            return value.elts[names.index(variable)]
        unnamed = [e for e in value.elts if not isinstance(e, (ast.Name, ast.Starred))]
        return unnamed[0] if not targets and len(unnamed) == 1 else None
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
        return None
    return value


def renumbered(tree, number):
    """The tree with other numbers for its inputs, {old: new}."""
    if tree[0] == "in":
        return ["in", number[tree[1]]]
    return [*tree[:2], *(_again(x, number) for x in tree[2:])]


def _again(x, number):
    """The same for what stands in a node: a node, a list of nodes, or numbers."""
    if isinstance(x, list) and x and isinstance(x[0], str):
        return renumbered(x, number)
    return [_again(p, number) for p in x] if isinstance(x, list) and x and isinstance(x[0], list) else x
