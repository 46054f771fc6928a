"""What the lines of a function do, read from its source: which names a statement sets, and which it reads.

Names are local variables ("scores") or attributes of the first argument ("self.weight").
"""

import ast
import functools
import io
import linecache
import re
import tokenize
from dataclasses import dataclass

SHAPE = r"\([^(),]+(?:,[^(),]*)+\)"
SHAPES = re.compile(rf"#\s*({SHAPE}(?:(?:,| and|:)?\s*{SHAPE})*)")  # a comment such as "# (N, D), (N, V)"
MULTIPLIERS = ("matmul", "dot")


@dataclass(frozen=True)
class Product:
    """A matrix product in a statement: code for its two sides, None where running that might change something."""

    left: object
    right: object


@dataclass(frozen=True)
class Statement:
    """One statement, or the head of a loop, a `with` or an `if`.

    targets: the names it sets, in order. changed: those it changes in place (`+=`, `[...] =`, `out=`).
    reads: the names it reads; parts: the same for each target, where a tuple is assigned to a tuple.
    returned: for a `return`, the name of each value, None for one without. letters: the shapes in its comment.
    loops: whether it is the head of a `for`, which comes by once more when the loop ends, and then sets nothing.
    blank: whether what it sets comes from `empty` or `empty_like`: arrays that hold nothing yet.
    pieces: the places in arrays that it reads or sets, such as "states[t]", with code that finds them.
    """

    source: str
    line: int
    targets: tuple = ()
    changed: tuple = ()
    reads: tuple = ()
    returned: tuple | None = None
    letters: tuple = ()
    products: tuple = ()
    loops: bool = False
    parts: tuple = ()
    blank: bool = False
    pieces: tuple = ()

    def reads_for(self, i):
        """What is read for target number i; for all of them with None."""
        return self.parts[i] if i is not None and i < len(self.parts) else self.reads

    def letters_for(self, i):
        """The shape in letters of target number i, "" if the comment does not say. One alone stands for all."""
        if len(self.letters) == 1:
            return self.letters[0]
        return self.letters[i] if i < len(self.letters) else ""


def statements_of(code):
    """Return {line: tuple of Statements} for a code object; None where its source cannot be had, or is not its own."""
    linecache.checkcache(code.co_filename)
    source = "".join(linecache.getlines(code.co_filename))
    functions, text = _functions(source)
    function = functions.get((code.co_name, code.co_firstlineno))
    if function is None:
        return None
    lines = _lines(function, text)
    compiled = {line for _, _, line in code.co_lines() if line and line >= function.body[0].lineno}
    return lines if compiled <= lines.keys() else None  # the file was changed after it was read


@functools.lru_cache(maxsize=256)
def _functions(source):
    """Return {(name, first line): its syntax tree} for every function in a file or notebook cell, and its text."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return {}, None
    functions = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    first = [min([n.lineno, *(d.lineno for d in n.decorator_list)]) for n in functions]
    return {(n.name, line): n for n, line in zip(functions, first, strict=True)}, _Text(source)


class _Text:
    """The lines of a source without their comments, and the shapes that the comments begin with."""

    def __init__(self, source):
        self.lines, self.letters = source.split("\n"), {}
        hashes = [i for i, line in enumerate(self.lines) if "#" in line]
        if any(set("'\"") & set(self.lines[i]) for i in hashes):  # a # in a string is no comment: look closely
            tokens = tokenize.generate_tokens(io.StringIO(source).readline)
            places = [(t.start[0] - 1, t.start[1]) for t in tokens if t.type == tokenize.COMMENT]
        else:
            places = [(i, self.lines[i].index("#")) for i in hashes]
        for i, column in places:
            line, comment = self.lines[i][:column], self.lines[i][column:]
            self.lines[i] = line
            if match := SHAPES.match(comment):
                self.letters[i + 1] = tuple(re.findall(SHAPE, match[1]))

    def between(self, first, last):
        """The lines first .. last as one."""
        return " ".join(" ".join(self.lines[first - 1 : last]).split())


def _lines(function, text):
    """Return {line: the statements on it}; all lines of one statement share one tuple."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    me = arguments[0].arg if arguments else None
    lines = {}
    for node in _statements(function.body):
        head = _head(node)
        last = head[-1].end_lineno if head else node.lineno
        statement = _read(node, head, me, text.between(node.lineno, last), text.letters.get(last, ()))
        own = (statement,)
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        for line in range(first, last + 1):
            lines[line] = (*lines[line], statement) if line in lines else own
    return lines


def _statements(body):
    """Yield every statement in source order, those inside loops and branches after their heads."""
    for node in body:
        yield node
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            continue
        for part in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(node, part, []))
        for handler in getattr(node, "handlers", []):
            yield handler
            yield from _statements(handler.body)


def _head(node):
    """Return the expressions that belong to the statement itself, not to the statements inside it."""
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return [node.target, node.iter]
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return node.items and [e for item in node.items for e in (item.context_expr, item.optional_vars) if e]
    if isinstance(node, (ast.While, ast.If)):
        return [node.test]
    if isinstance(node, ast.ExceptHandler):
        return [node.type] if node.type else []
    if isinstance(node, (ast.Try, ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
        return []
    return [node]


def _read(node, head, me, source, letters):
    targets, changed = [], []
    if isinstance(node, ast.Assign):
        for target in node.targets:
            _targets(target, me, targets, changed)
    elif isinstance(node, (ast.AnnAssign, ast.For)):
        _targets(node.target, me, targets, changed)
    elif isinstance(node, ast.AugAssign):
        _targets(node.target, me, changed, changed)
    elif isinstance(node, ast.With):
        for item in node.items:
            if item.optional_vars is not None:
                _targets(item.optional_vars, me, targets, changed)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        _changed_by_call(node.value, me, changed)
    inner = [n for part in head for n in ast.walk(part)]
    targets += [n.target.id for n in inner if isinstance(n, ast.NamedExpr)]
    return Statement(
        source,
        node.lineno,
        tuple(dict.fromkeys(targets)),
        tuple(dict.fromkeys(changed)),
        _reads(head, me),
        _returned(node.value) if isinstance(node, ast.Return) else None,
        letters,
        tuple(p for n in inner if (p := _product(n))),
        isinstance(node, (ast.For, ast.AsyncFor)),
        _parts(node, me),
        isinstance(node, ast.Assign) and any(_is_empty(v) for v in getattr(node.value, "elts", [node.value])),
        tuple((ast.unparse(n), code) for n in inner if _is_piece(n) and (code := _compiled(n))),
    )


def _targets(node, me, names, changed):
    """Append the names that an assignment to `node` sets to `names`, and those it changes in place to `changed`."""
    if isinstance(node, (ast.Tuple, ast.List)):
        for part in node.elts:
            _targets(part, me, names, changed)
    elif isinstance(node, ast.Starred):
        _targets(node.value, me, names, changed)
    elif isinstance(node, ast.Subscript):
        base = node.value
        while isinstance(base, ast.Subscript):
            base = base.value
        _targets(base, me, changed, changed)
    elif name := _dotted(node, me):
        names.append(name)


def _dotted(node, me):
    """Return "x" for a variable and "self.x" (also "self.x.grad") for an attribute of the first argument, else None."""
    if isinstance(node, ast.Name):
        return node.id
    parts = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    if parts and isinstance(node, ast.Name) and node.id == me:
        return ".".join(["self", *parts])
    return None


def _changed_by_call(call, me, changed):
    """A call that stands alone may write to `out=`, to the first argument of `copyto`, to a parameter's gradient."""
    changed += [k.value.id for k in call.keywords if k.arg == "out" and isinstance(k.value, ast.Name)]
    function = _dotted(call.func, me) or ""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else function
    if name in ("copyto", "put_along_axis") and call.args and isinstance(call.args[0], ast.Name):
        changed.append(call.args[0].id)
    if function.startswith("self.") and function.endswith(".accumulate"):
        changed.append(function.removesuffix("accumulate") + "grad")
    for argument in call.args:
        name = _dotted(argument, me)
        if name and name.startswith("self.") and name.endswith(".grad"):
            changed.append(name)


def _reads(head, me):
    """Return the names that the expressions read, each once, in the order in which they stand."""
    found = []
    for part in head:
        for node in ast.walk(part):
            name = None
            if isinstance(node, ast.Attribute):
                name = _dotted(node, me)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                name = node.id
            if isinstance(part, ast.AugAssign) and node is part.target:
                name = _dotted(node, me)
            if name and name != me:
                found.append(((node.lineno, node.col_offset), name))
    return tuple(dict.fromkeys(name for _, name in sorted(found, key=lambda pair: pair[0])))


def _parts(node, me):
    """Return what each part of `a, b = .., ..` reads, () for any other statement."""
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple) and len(node.targets) == 1):
        return ()
    targets = getattr(node.targets[0], "elts", ())
    if len(targets) != len(node.value.elts) or not all(isinstance(t, (ast.Name, ast.Attribute)) for t in targets):
        return ()
    return tuple(_reads([value], me) for value in node.value.elts)


def _is_empty(node):
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("empty", "empty_like")


def _is_piece(node):
    """Say whether it is a variable with one index, as states[t + 1]."""
    index = isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.slice
    return isinstance(index, (ast.Name, ast.BinOp, ast.UnaryOp))


def _returned(value):
    if isinstance(value, (ast.Tuple, ast.List)):
        return tuple(
            e.id if isinstance(e, ast.Name) else f"*{e.value.id}" if _is_starred_name(e) else None for e in value.elts
        )
    return (value.id,) if isinstance(value, ast.Name) else (None,)


def _is_starred_name(node):
    return isinstance(node, ast.Starred) and isinstance(node.value, ast.Name)


def _product(node):
    """Return the Product that an `@`, a `matmul` or a `dot` is, else None."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return Product(_compiled(node.left), _compiled(node.right))
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.MatMult):
        return Product(_compiled(node.target), _compiled(node.value))
    if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in MULTIPLIERS:
        if len(node.args) == 2:
            return Product(_compiled(node.args[0]), _compiled(node.args[1]))
        if len(node.args) == 1 and isinstance(node.func, ast.Attribute):
            return Product(_compiled(node.func.value), _compiled(node.args[0]))
    return None


HARMLESS = ("reshape", "swapaxes", "transpose", "astype", "copy", "sum", "ravel", "ones", "ascontiguousarray")


def _compiled(node):
    """Return code that computes the expression, to learn its shape; None where it calls what may change something."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            name = inner.func.attr if isinstance(inner.func, ast.Attribute) else getattr(inner.func, "id", "")
            if name not in (*HARMLESS, "len"):
                return None
        elif isinstance(inner, (ast.NamedExpr, ast.Lambda, ast.Await, ast.Yield)):
            return None
    expression = ast.parse(ast.unparse(node), mode="eval")
    return compile(expression, "<product>", "eval")
