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
"""

import ast

from .expressions import Part, Reader, Unknown, name_of


def read(source, variable, leaf, constant, shape):
    """Return the tree of the array that a statement gives to `variable`, or returns; None where it cannot be read.

    leaf(expression) gives (i, shape) of the input that this part of the source stands for, such as `q`,
    `self.weight.data` or `self.norm1(x)`, or None. constant(expression) gives the value of a part that is no array,
    such as `self.d_in`, or raises LookupError. shape is that of the array.
    """
    try:
        statement = ast.parse(source.strip()).body[0]
    except (SyntaxError, IndexError):
        return None
    value = _value_of(statement, variable)
    if value is None:
        return None
    reader = Reader(leaf, constant, shape)
    try:
        part = reader.part(value, reader.result)
    except (Unknown, AttributeError, IndexError, TypeError, ValueError):  # a reader's source may be anything
        return None
    return part.tree if isinstance(part, Part) and part.shape == reader.result else None


def _value_of(statement, variable):
    """The expression that a statement gives to a variable: of `a, b = x, y` that beside it; None where it has none."""
    value = getattr(statement, "value", None)
    if isinstance(statement, ast.AugAssign):
        return ast.copy_location(ast.BinOp(statement.target, statement.op, statement.value), statement)
    if isinstance(statement, ast.Expr) and isinstance(value, ast.Call) and name_of(value.func) == "accumulate":
        return value.args[0]
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
