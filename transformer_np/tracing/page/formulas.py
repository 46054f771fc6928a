"""What the statements of each layer say in the paper's symbols, and in words.

FORMULAS[class][method] maps the beginning of a statement, such as "scores =", to (formula, words). Methods that are not
listed by name go by "forward", or in backward by "backward". A test holds every entry against the source. A statement
that is not here, such as one of the reader's own, is shown as it is written.
The symbols are those of docs/derivations; * is entry by entry, a product without a sign is one of matrices.
"""

import ast

from .layer_formulas import LAYERS
from .model_formulas import MODELS
from .recurrent_formulas import RECURRENT

FORMULAS = {**LAYERS, **RECURRENT, **MODELS}


def formula_of(kind, method, source):
    """Return (formula, words) of a statement; (None, words) where only its form is known, (None, "") where nothing."""
    tables = FORMULAS.get(kind, {})
    table = tables.get(method) or tables.get("backward" if method == "backward" else "forward", {})
    statement = parse(source)
    if statement is None:
        return None, "Filled piece by piece by the steps before: now it is whole." if kind and not source else ""
    for key in (ast.unparse(statement), beginning(statement)):
        if key in table:
            return table[key]
    if is_reshape(statement):
        return None, "The same numbers in the same order, in another shape."
    return None, _words(statement, "backward" in method)


def _words(statement, backward):
    """What can be said of a statement by its form alone."""
    if isinstance(statement, ast.For):
        return "The loop's next round."
    if calls(statement, "real_tokens"):
        return "True at real tokens, False at padding."
    if calls(statement, "saved"):
        return "What forward kept for this moment."
    if _is_sum(statement, backward):
        if backward:
            return "A value that was used more than once gets the sum of its gradients."
        return "The residual path: what came in is added to what the sub-layer made of it."
    if backward and any(isinstance(n, ast.MatMult) for n in ast.walk(statement)):
        return "Back through a product: each gradient times what its number met there."
    layer = _layer_called(statement)
    if layer:
        return f"The gradient that comes back through {layer}." if backward else f"What {layer} makes of it."
    return ""


def parse(source):
    """Return the one statement of a source line, the head of a loop with nothing in it, or None."""
    source = source.strip()
    try:
        return ast.parse(f"{source} pass" if source.endswith(":") else source).body[0]
    except (SyntaxError, IndexError):
        return None


def beginning(statement):
    """Return what a statement is found by: "scores =", "y +=", "return", "self.weight.accumulate", "for t, a in"."""
    if isinstance(statement, ast.Assign):
        return f"{_target(statement.targets[0])} ="
    if isinstance(statement, ast.AugAssign):
        target, sign = statement.target, ast.unparse(statement).split("=")[0].split()[-1]
        name = ast.unparse(target.value if isinstance(target, ast.Subscript) else target)
        return name if isinstance(target, ast.Subscript) else f"{name} {sign}="
    if isinstance(statement, ast.Return):
        return "return"
    if isinstance(statement, ast.For):
        return f"for {_target(statement.target)} in"
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return ast.unparse(statement.value.func)
    return ""


def _target(node):
    """A target as it is mostly written: a tuple without its brackets."""
    text = ast.unparse(node)
    return text[1:-1] if isinstance(node, ast.Tuple) else text


def is_reshape(statement):
    """Say whether a statement changes nothing but shapes (and perhaps a type)."""
    value = getattr(statement, "value", None)
    if not isinstance(statement, (ast.Assign, ast.Return)):
        return False
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    shapes = [getattr(v, "attr", "") == "shape" for v in values]
    return not all(shapes) and all(a or _reshapes(v) for a, v in zip(shapes, values, strict=True))


def _reshapes(value):
    while isinstance(value, ast.Call):
        name = getattr(value.func, "attr", getattr(value.func, "id", ""))
        if name == "reshape":
            return isinstance(value.func.value, ast.Name)
        if name == "astype":
            value = value.func.value
        elif name == "widen" and value.args:
            value = value.args[0]
        else:
            return False
    return False


def calls(statement, name):
    """Say whether a function or method of that name is what the statement calls last."""
    value = getattr(statement, "value", None)
    return isinstance(value, ast.Call) and name in (getattr(value.func, "attr", ""), getattr(value.func, "id", ""))


def _is_sum(statement, backward):
    """Say whether a statement adds the result of a sub-layer to something, or gradients to each other."""
    value = getattr(statement, "value", None)
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    sums = [v for v in values if isinstance(v, ast.BinOp) and isinstance(v.op, ast.Add)]
    names = all(isinstance(n, (ast.Name, ast.BinOp, ast.Add, ast.Load)) for v in sums for n in ast.walk(v))
    return bool(sums) and ((backward and names) or any(_is_layer(n) for v in sums for n in ast.walk(v)))


def _is_layer(node):
    """Say whether a node is the call of a sub-layer: self.norm1(x), self.norm1.backward(dy)."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith("self.")


def _layer_called(statement):
    """The name of the sub-layer whose call is all of a statement's value."""
    value = getattr(statement, "value", None)
    if isinstance(value, ast.IfExp):
        value = value.orelse
    if not isinstance(value, ast.Call):
        return ""
    name = ast.unparse(value.func).removesuffix(".backward").removesuffix(".forward")
    if name in ("layer", "block"):
        return f"the {name}"
    return name.removeprefix("self.") if name.startswith("self.") and name.count(".") == 1 else ""
