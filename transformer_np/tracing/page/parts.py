"""The nodes of the trees of provenance.py, while they are being made: each with the shape of what it stands for."""

import ast


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
