"""What calls of this package's own functions do to the places of numbers: each returns the Part of its result."""

import ast

from .parts import Constant, Part


def _turned(reader, part):
    """From the end, where the layer reads so."""
    reverse = reader.constant("self.reverse")
    return Part(part.shape, ["turn", part.shape, 0, part.tree]) if reverse else part


def _column_sums(reader, node, wanted):
    part = reader.array(node.args[0])
    kept = (1, *part.shape[1:])
    return reader.flat(Part(kept, ["along", kept, [-len(part.shape)], [part.tree]]), part.shape[1:])


def _add_rows(reader, node, wanted):
    _, ids, rows = map(reader.array, node.args)
    return Part(reader.result, ["gather", reader.result, ids.tree, rows.tree])


def _split_heads(reader, node, wanted):
    part = reader.array(node.args[0])
    n = wanted[1] if wanted and len(wanted) == 4 else reader.integer(node.args[1])
    b, t, d = part.shape
    return reader.moved(reader.flat(part, (b, t, n, d // n)), (0, 2, 1, 3))


def _merge_heads(reader, node, wanted):
    part = reader.moved(reader.array(node.args[0]), (0, 2, 1, 3))
    return reader.flat(part, (*part.shape[:2], part.shape[2] * part.shape[3]))


def _repeat_heads(reader, node, wanted):
    part, n = reader.array(node.args[0]), reader.integer(node.args[1])
    shape = (part.shape[0], part.shape[1] * n, *part.shape[2:])
    return part if n == 1 else Part(shape, ["repeat", shape, 1, n, part.tree])


def _sum_repeated_heads(reader, node, wanted):
    part, n = reader.array(node.args[0]), reader.integer(node.args[1])
    if n == 1:
        return part
    b, h, *rest = part.shape
    groups = reader.flat(part, (b, h // n, n, *rest))
    kept = (b, h // n, 1, *rest)
    return reader.flat(Part(kept, ["along", kept, [-1 - len(rest)], [groups.tree]]), (b, h // n, *rest))


def _constant(reader, node, wanted):
    return Constant()


def _rotate(reader, node, wanted):
    """Each number of a pair from both, and from the pair's cosine and sine."""
    x, cos, sin = map(reader.array, (a.operand if isinstance(a, ast.UnaryOp) else a for a in node.args[:3]))
    beside = reader.value(node.args[3]) == "interleaved"
    axis = -1 if beside else -2

    def paired(part, size):
        *lead, n = part.shape
        pairs = n if size == 1 else n // 2
        return reader.flat(part, (*lead, pairs, size) if beside else (*lead, size, pairs)).tree

    shape = (*x.shape[:-1], x.shape[-1] // 2, 2) if beside else (*x.shape[:-1], 2, x.shape[-1] // 2)
    tree = ["along", shape, [axis], [paired(x, 2), paired(cos, 1), paired(sin, 1)]]
    return reader.flat(Part(shape, tree), x.shape)


def _gradient_of(reader, node, wanted):
    """(p - q) / n: each from its own place, its row's sum, and its row's share."""
    kept, *rows = (reader.part(a) for a in (node.args[0], node.args[1], node.args[3]))
    rows = [reader.flat(r, (*r.shape, 1)) for r in rows if isinstance(r, Part)]
    return reader.same([kept, *rows])


def _time_first(reader, node, wanted):
    part = reader.array(node.args[0])
    return _turned(reader, reader.moved(part, (1, 0, *range(2, len(part.shape)))))


def _batch_first(reader, node, wanted):
    part = _turned(reader, reader.array(node.args[0]))
    return reader.moved(part, (1, 0, *range(2, len(part.shape))))


CALLS = {
    "column_sums": _column_sums,
    "add_rows": _add_rows,
    "split_heads": _split_heads,
    "merge_heads": _merge_heads,
    "repeat_heads": _repeat_heads,
    "sum_repeated_heads": _sum_repeated_heads,
    "constant": _constant,
    "rotate": _rotate,
    "gradient_of": _gradient_of,
    "time_first": _time_first,
    "batch_first": _batch_first,
}
