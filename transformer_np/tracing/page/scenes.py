"""The scenes that the page shows one after another: each statement that ran, with what it read and what it made.

Arguments of one call are one scene, and so are the results of one statement. Every step of the trace is in just one.
"""

import ast
import inspect
import re
from dataclasses import dataclass, field

from ...module import Parameter
from ..names import arguments_of
from ..run import objects_in
from . import provenance
from .formulas import formula_of, parse
from .parts import leaves


@dataclass
class Scene:
    """outputs: Steps. inputs: (name, array) of what the statement read. trees: where each output's numbers come from.

    partners: for each output the (name, array) it belongs to: the value of forward whose gradient it is, or None.
    formula, words: see `formulas.formula_of`.
    """

    outputs: list
    inputs: list = field(default_factory=list)
    trees: list = field(default_factory=list)
    partners: list = field(default_factory=list)
    formula: str | None = None
    words: str = ""

    @property
    def first(self):
        """The first Step, which says for all of them where they are."""
        return self.outputs[0]

    @property
    def enters(self):
        """Whether this is the beginning of a call, with its arguments."""
        return _is_given(self.first)


def scenes_of(trace):
    """Return the Scenes of a trace, in order."""
    groups = []
    for step in trace.steps:
        if groups and _together(groups[-1], step):
            groups[-1].append(step)
        else:
            groups.append([step])
    maker = _Maker(trace)
    scenes = [maker.scene(group) for group in groups]
    for i, scene in enumerate(scenes):
        if scene.enters:
            maker.hand_over(scene, groups[i + 1 :])
    return scenes


def _is_given(step):
    """Whether an array is the argument of a call, and not one that was filled for it, part by part, before."""
    return step.role == "argument" and not step.inputs


def _together(group, step):
    last = group[-1]
    same_call = (last.call, last.module, last.phase) == (step.call, step.module, step.phase)
    if not same_call or _is_given(last) != _is_given(step):
        return False
    same_line = _is_given(step) or (last.line, last.source) == (step.line, step.source)
    return same_line and all(s.variable != step.variable for s in group)


class _Maker:
    """Makes Scenes of the steps of one trace.

    values: {name: Step}. modules: {dotted name: object}, to look up sizes such as self.d_in. parameters: {name: value},
    shared ones under each of their names. partners: {name of a gradient: the Step whose gradient it is}.
    """

    def __init__(self, trace):
        self.values = {step.name: step for step in trace.steps}
        self.modules = dict(objects_in(trace.model, trace.loss_fn).values())
        self.parameters = {**_shared(self.modules, trace.parameters), **trace.parameters}
        pairs = ((s, trace.gradient_of(s)) for s in trace.steps if s.phase != "backward")
        self.partners = {gradient.name: step for step, gradient in pairs if gradient is not None}

    def scene(self, group):
        """The Scene of steps that belong together."""
        first = group[0]
        scene = Scene(group, partners=[self._partner(step) for step in group])
        if scene.enters:
            scene.trees = [None] * len(group)
            return scene
        scene.inputs = self._inputs(group)
        module = self.modules.get(first.module)
        scene.formula, scene.words = formula_of(_house_class(module, first.file), first.method, first.source)
        leaf, constant = _Leaves(first, scene.inputs, self.values), self._constant(first)
        trees = [provenance.read(s.source, s.variable, leaf, constant, s.value.shape) for s in group]
        pairs = zip(group, trees, strict=True)
        scene.trees = [_copy_of(step, scene.inputs) if tree is None else tree for step, tree in pairs]
        if not first.source and scene.trees == [None]:
            scene.trees = [_filled(first, scene.inputs)]
        scene.inputs = _in_use(scene)
        return scene

    def hand_over(self, scene, later):
        """Give a call's arguments their trees, where the statement around it computes them on the spot."""
        found = self._call_of(scene.first, later)
        if found is None:
            return
        group, call = found
        names = arguments_of(self.modules.get(scene.first.module), scene.first.method)
        given = dict(zip(names, call.args, strict=False)) | {k.arg: k.value for k in call.keywords}
        inputs, step = self._inputs(group), group[0]
        leaf, constant = _Leaves(step, inputs, self.values), self._constant(step)
        nodes = [given.get(s.variable) for s in scene.outputs]
        pairs = zip(scene.outputs, nodes, strict=True)
        trees = [None if n is None else provenance.read_expression(n, leaf, constant, s.value.shape) for s, n in pairs]
        trees = [None if tree is None or tree[0] == "in" else tree for tree in trees]
        used = sorted(set().union(*(leaves(tree) for tree in trees if tree is not None)))
        number = {old: new for new, old in enumerate(used)}
        scene.trees = [None if tree is None else provenance.renumbered(tree, number) for tree in trees]
        scene.inputs = [inputs[i] for i in used]

    def _call_of(self, step, later):
        """(steps of the statement in which a call stood, its syntax tree): the first that the layer around has made."""
        path = step.module.split(".")
        around = next((m for k in range(len(path) - 1, -1, -1) if (m := ".".join(path[:k])) in self.modules), None)
        if not step.module or around is None:
            return None
        called = f"self.{step.module[len(around) + 1 :] if around else step.module}"
        called = {f"{called}.{step.method}", *([called] if step.method == "forward" else [])}
        mine = (g for g in later if g[0].module == around and not _is_given(g[0]))
        group = next(mine, None)
        statement = None if group is None or group[0].phase != step.phase else parse(group[0].source)
        calls = [] if statement is None else [n for n in ast.walk(statement) if isinstance(n, ast.Call)]
        found = [n for n in calls if ast.unparse(n.func) in called]
        return (group, found[0]) if len(found) == 1 else None

    def _constant(self, step):
        """What looks up sizes: numbers that the statement read, or the layer's own."""

        def constant(expression):
            module = self.modules.get(step.module)
            return step.sizes[expression] if expression in step.sizes else _attribute(module, expression)

        return constant

    def _inputs(self, group):
        """(name, array) of all that a statement read, in order, and of the arrays that a class of one's own keeps."""
        first = group[0]
        own = re.findall(r"\bself\.(\w+)", first.source)
        own = [f"{first.module}.{name}" if first.module else name for name in own]
        own = [name for name in own if name in self.parameters]
        found = []
        for name in dict.fromkeys([*(n for step in group for n in step.inputs), *own]):
            step = self.values.get(name)
            if step is None and name in self.parameters:
                found.append((name, self.parameters[name]))
            elif step is not None and step not in group:
                found.append((name, step.value))
        return found

    def _partner(self, step):
        """(name, array) of the forward value whose gradient a step of backward is, or becomes."""
        if step.phase != "backward":
            return None
        plain = step.variable.removeprefix("d").split(".")[0]
        name = f"{step.module}.{plain}" if step.module else plain
        if step.role == "gradient":
            return (name, self.parameters[name]) if name in self.parameters else None
        other = self.partners.get(step.name)
        if other is None and step.variable.startswith("d"):
            other = self.values.get(name)
        if other is None or other.phase == "backward" or other.value.size != step.value.size:
            return None
        return other.name, other.value.reshape(step.value.shape)


def _house_class(layer, file):
    """The name of the class of this package, the layer's own or one it inherits from, whose file the statement is in.

    Formulas are for those alone: a class of the reader's own may be called Linear too.
    """
    for cls in type(layer).__mro__:
        if cls.__module__.split(".")[0] == __name__.split(".")[0] and inspect.getsourcefile(cls) == file:
            return cls.__name__
    return None


def _shared(modules, parameters):
    """{further name: value} of parameters that several layers share, as a tied output shares the embedding's."""
    found, first = {}, {}
    for module, thing in modules.items():
        for attribute, value in getattr(thing, "__dict__", {}).items():
            if isinstance(value, Parameter):
                name = f"{module}.{attribute}" if module else attribute
                if name in parameters:
                    first[id(value)] = name
                found[name] = id(value)
    return {name: parameters[first[key]] for name, key in found.items() if key in first}


def _in_use(scene):
    """Leave out what only a call inside the statement has used: its result is what the statement works with.

    Trees number the inputs, so they are numbered anew.
    """
    if any(tree is None for tree in scene.trees):
        return scene.inputs
    used = sorted(set().union(*(leaves(tree) for tree in scene.trees)))
    if not used:
        return scene.inputs
    number = {old: new for new, old in enumerate(used)}
    scene.trees = [provenance.renumbered(tree, number) for tree in scene.trees]
    return [scene.inputs[i] for i in used]


def _attribute(module, expression):
    """Look up self.d_in and the like on the layer itself; anything else is not known."""
    node = ast.parse(expression, mode="eval").body
    path = []
    while isinstance(node, ast.Attribute):
        path.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id != "self" or module is None:
        raise LookupError(expression)
    for name in path:
        module = getattr(module, "__dict__", {})[name]
    return module


class _Leaves:
    """Find which input an expression stands for: a variable, a parameter's data, or a call of a sub-layer."""

    def __init__(self, step, inputs, values):
        self.prefix = f"{step.module}." if step.module else ""
        self.known = {}
        for i, (name, array) in enumerate(inputs):
            self.known |= {text: (i, array.shape) for text, piece in step.pieces.items() if piece == name}
            source = values.get(name)
            if source is None:
                own = name.removeprefix(self.prefix)
                self.known.setdefault(f"self.{own}.data", (i, array.shape))
                self.known.setdefault(f"self.{own}.grad", (i, array.shape))
                self.known.setdefault(f"self.{own}", (i, array.shape))
            elif source.module == step.module:
                self.known.setdefault(source.variable, (i, array.shape))
                self.known.setdefault(f"self.{source.variable}", (i, array.shape))
                if source.method != step.method and source.phase == step.phase:
                    self.known[f"call {source.method}"] = (i, array.shape)
            else:
                inside = source.module.removeprefix(self.prefix)
                self.known.setdefault(f"call {inside}", (i, array.shape))
        self._other_names(step, inputs, values)

    def _other_names(self, step, inputs, values):
        """Match names that stand for an array recorded under an earlier name, `dropped` for weights, in order."""
        read = names_in(step.source)
        pieces = {text.partition("[")[0] for text in step.pieces}
        names = [n for n in read if n not in self.known and n not in step.sizes and n not in pieces]
        rest = [
            (i, array.shape)
            for i, (name, array) in enumerate(inputs)
            if name in values and values[name].module == step.module and values[name].variable not in read
            if name not in step.pieces.values() and "[" not in values[name].variable
        ]
        if len(names) == len(rest):
            self.known.update(zip(names, rest, strict=True))

    def __call__(self, expression):
        if expression in self.known:
            return self.known[expression]
        if not expression.startswith("self."):
            return None
        node = ast.parse(expression, mode="eval").body
        if not isinstance(node, ast.Call):
            return None
        called = ast.unparse(node.func).removeprefix("self.")
        for ending in (".forward", ".backward", ".encode", ".decode"):
            called = called.removesuffix(ending)
        return self.known.get(f"call {called}")


def names_in(source):
    """The variables that a statement reads, in order, without what it calls."""
    statement = parse(source)
    if statement is None:
        return []
    nodes = list(ast.walk(statement))
    called = {id(n.func) for n in nodes if isinstance(n, ast.Call)}
    found = [n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and id(n) not in called]
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        found.append(statement.target)
    found.sort(key=lambda n: (n.lineno, n.col_offset))
    return [n for n in dict.fromkeys(n.id for n in found) if n not in ("self", "np", "xp")]


def _copy_of(step, inputs):
    """The tree of a result that is one of the inputs, number for number, as what a sub-layer returned."""
    for i in reversed(range(len(inputs))):
        array = inputs[i][1]
        if (
            array.size == step.value.size
            and array.dtype == step.value.dtype
            and array.tobytes() == step.value.tobytes()
        ):
            return ["in", i] if array.shape == step.value.shape else ["flat", step.value.shape, ["in", i]]
    return None


def _filled(step, inputs):
    """The tree of an array that was filled row by row with the inputs; a row of zeros needs none of them."""
    known = {array.tobytes(): i for i, (_, array) in enumerate(inputs)}
    row = (1, *step.value.shape[1:])
    found = [known.get(part.tobytes()) for part in step.value]
    if all(i is None for i in found) or any(i is None and p.any() for i, p in zip(found, step.value, strict=True)):
        return None
    return ["join", step.value.shape, 0, [["nothing", row] if i is None else ["flat", row, ["in", i]] for i in found]]


def title_of(scene):
    """The heading of a scene: what the statement sets, or what the call is given."""
    step = scene.first
    names = ", ".join(dict.fromkeys(s.variable for s in scene.outputs))
    if scene.enters:
        return f"{step.kind}.{step.method} is given {names}"
    statement = parse(step.source)
    if step.role == "returned" or isinstance(statement, ast.Return):
        return f"{step.kind} returns {names}"
    if step.role == "gradient":
        return f"{names}, added to the gradient"
    return names
