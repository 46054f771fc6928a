"""Watch the methods of a model run, statement by statement, and keep a copy of every array they make.

Python calls a trace function (`sys.settrace`) before each line. By then the line before has run, and what it assigned
can be copied. Nothing is computed twice, no layer knows of it, and when no recorder is at work nothing is slower.
"""

import inspect
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import module as contract
from ..backend import to_numpy
from ..checking.trees import is_array
from ..module import Parameter
from .names import name_of_gradient, name_of_output
from .statements import statements_of

# On a GPU some methods are replaced by functions of this file, which take the layer as their first argument.
KERNELS = str(Path(contract.__file__).with_name("kernels.py"))
SKIPPED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@dataclass
class Record:
    """One array at one moment; a Step before the steps are numbered. `inputs` holds numbers of records, and names;
    `place` says which of the statement's targets it is, `in_place` that an array was changed, not a new one made.
    `sizes` are the whole numbers, and tuples of them, that the statement read; `pieces` {"states[t]": number} the
    records that were put into a place which it read."""

    phase: str
    module: str
    kind: str
    method: str
    variable: str
    role: str
    value: np.ndarray
    statement: object
    place: int
    file: str
    line: int
    inputs: tuple
    call: int
    in_place: bool
    sizes: dict
    pieces: dict


class Recorder:
    """While `with recorder:` runs, records what the methods of the given objects compute, on this thread.

    objects: {id: (dotted name, object)}; parameters: {id: dotted name}. `phase` is set by whoever runs the model.
    `replace(call, variable, count, value)` is asked about every array that a method of these objects sets, count being
    how often this call has set that name. Unless None, what it returns takes the array's place: so a test can move one
    number in the middle of a model.
    `records` are the results; `aliases` the further names that an array was given as it stood, (dotted name, variable,
    number of the record, how many records there were); `products` the matrix products, (phase, dotted name, class,
    shapes of the two sides, statement).
    """

    def __init__(self, objects, replace=None, parameters=None):
        self.objects, self.replace, self.parameters = objects, replace, parameters or {}
        self.phase = "forward"
        self.records, self.products, self.visits, self.aliases = [], [], [], []
        self._wanted = {}  # code -> whether it may be a method to record
        self.statements = {}  # code -> its statements, by line
        self.blank = {}  # id -> array that is being filled, part by part
        self.put = {}  # id of such an array -> numbers of the records that were put into it
        self.latest = {}  # (dotted name, variable) -> (number of the record, the object itself)
        self.n_calls = Counter()  # of each object's methods

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *exception):
        sys.settrace(self._before)
        self.visits.clear()

    def _call(self, frame, event, argument):
        code = frame.f_code
        wanted = self._wanted.get(code)
        if wanted is None:
            wanted = self._wanted[code] = _is_wanted(code)
        if not wanted or event != "call":
            return None
        me = frame.f_locals.get(code.co_varnames[0])
        name, known = self.objects.get(id(me), (None, None))
        if name is None or known is not me:
            return None
        visit = Visit(self, frame, me, name)
        self.visits.append(visit)
        visit.arguments(code)
        return visit.event


class Visit:
    """One call of one method: which of its names hold which record, and the statement that is running."""

    def __init__(self, recorder, frame, me, name):
        self.recorder, self.me, self.module = recorder, me, name
        self.kind, self.method, self.file = type(me).__name__, frame.f_code.co_name, frame.f_code.co_filename
        if self.file == KERNELS:
            self.method = "backward" if self.method.endswith("_backward") else "forward"
        self.number = recorder.n_calls[id(me)]
        recorder.n_calls[id(me)] += 1
        caller = recorder.visits[-1] if recorder.visits else None
        self.caller = caller
        self.inside = caller is not None and caller.me is me  # called by a method of the same object
        if frame.f_code not in recorder.statements:
            recorder.statements[frame.f_code] = statements_of(frame.f_code)
        self.lines, self.values = recorder.statements[frame.f_code], frame.f_locals
        self.globals = frame.f_globals
        self.pending, self.line = (), frame.f_lineno
        self.known = {}  # variable -> number of its record
        self.objects = {}  # variable -> the object it held when last looked at
        self.counts = {}  # variable -> how often it was set
        self.called = []  # records that calls within the running statement returned

    def arguments(self, code):
        """Record the arguments of the call."""
        n = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
        called, self.called = self.called, []
        for variable in code.co_varnames[1:n]:
            value = self.values.get(variable)
            if value is None or isinstance(value, float):
                continue
            if self.inside and (names := self.caller.names_of(value)):
                self.objects[variable], self.known[variable] = value, self.caller.known[names[0]]
            else:
                full = self.inside and id(value) in self.recorder.blank  # by now, and not known to the caller
                number = self._set(variable, value, "argument", self._filling(value) if full else None)
                if full:
                    self.caller.called.append(number)
        self.called = called

    def names_of(self, value):
        """The variables that hold this very object, and have been recorded; the last one first."""
        return [n for n, held in reversed(self.objects.items()) if held is value and n in self.known]

    def event(self, frame, event, argument):
        """What Python calls before each line, at the return, and at an exception."""
        self.values = frame.f_locals  # looked at once: what is put there counts when Python goes on
        if event == "line":
            if self.lines is None:
                self._finish_blindly()
            else:
                statements = self.lines.get(frame.f_lineno, ())
                if statements is self.pending and statements:
                    return self.event  # another line of the same statement
                self._finish()
                self.pending = statements
                for statement in statements:
                    if statement.products:
                        self._count_products(statement)
            self.line, self.called = frame.f_lineno, []
        elif event == "exception":
            self.pending = ()
        elif event == "return":
            self._return(argument)
        return self.event

    def _finish(self):
        """Record what the statement that just ran has set."""
        known = dict(self.known)  # what the statement could read
        for statement in self.pending:
            for i, name in enumerate(statement.targets):
                self._target(name, statement, i, known)
            for name in statement.changed:
                self._target(name, statement, None, known)

    def _target(self, name, statement, i, known):
        """Record target number i of a statement, or, with i None, what it changed in place."""
        source = (statement, i or 0, self._inputs(statement, i, known), self._sizes(statement), self._pieces(statement))
        if name.startswith("self."):
            self._attribute(name.removeprefix("self."), source)
            return
        if name not in self.values or name == "_":
            return
        value = self.values[name]
        if statement.blank or id(value) in self.recorder.blank:
            self.recorder.blank[id(value)] = value
            self.recorder.put.setdefault(id(value), []).extend(n for n in source[2] if isinstance(n, int))
            return
        if statement.loops and self.objects.get(name) is value:
            return  # a loop that ends comes by its head once more, and sets nothing
        if i is None or name in (names := self.names_of(value)) or not self._alias(name, value, names):
            self._set(name, value, "assigned", source, always=i is None)

    def _alias(self, variable, value, names):
        """Let a variable stand for the record of another that holds the same object, unchanged; False if none does."""
        for number in dict.fromkeys(self.known[name] for name in names):
            if is_array(value) and same_bits(self.recorder.records[number].value, to_numpy(value)):
                self.objects[variable], self.known[variable] = value, number
                self.recorder.aliases.append((self.module, variable, number, len(self.recorder.records)))
                return True
        return False

    def _attribute(self, path, source):
        """An attribute that was set: an array, or a parameter's gradient that was added to."""
        first, *rest = path.split(".")
        value = getattr(self.me, first, None)
        if isinstance(value, Parameter):
            if rest[-1:] == ["grad"] and value.has_grad:
                self._set("d" + first, value.grad, "gradient", source, always=True)
        elif not rest and not (first.startswith("_") and isinstance(self.me, contract.Module)):
            self._set(first, value, "assigned", source)

    def _finish_blindly(self):
        """Without source: whatever variable holds another object than before was set."""
        for name, value in self.values.items():
            if value is not self.me and self.objects.get(name) is not value:
                self._set(name, value, "assigned", None)

    def _return(self, value):
        statements, self.pending = self.pending, ()
        returned = next((s for s in statements if s.returned is not None), None)
        recorder = self.recorder
        if self.lines is None:
            self._finish_blindly()
        elif returned is None:
            self.pending = statements
            self._finish()
        if not self.inside:
            self._filled()
        if value is not None:
            self._returned(value, returned)
        if recorder.visits and recorder.visits[-1] is self:
            recorder.visits.pop()

    def _filled(self):
        """Record the arrays that were filled part by part, now that they are full."""
        for name, value in list(self.values.items()):
            if self.recorder.blank.pop(id(value), None) is not None:
                self._set(name, value, "returned", self._filling(value))

    def _filling(self, value):
        """The source of an array that was filled part by part: what was put into it."""
        return None, 0, tuple(dict.fromkeys(self.recorder.put.get(id(value), ()))), {}, {}

    def _returned(self, value, statement):
        """Record the values of a `return` that have no name of their own."""
        names = (statement and statement.returned) or (None,)
        source = None
        if statement is not None:
            inputs = self._inputs(statement, None, self.known)
            source = (statement, 0, inputs, self._sizes(statement), self._pieces(statement))
        several = isinstance(value, tuple) and len(names) > 1
        parts = zip(value, names, strict=False) if several else [(value, names[0])]
        for i, (part, name) in enumerate(parts):
            if name is not None and name.lstrip("*") in self.known:
                number = self.known[name.lstrip("*")]
            else:
                number = self._unnamed(part, source, i if several else None, name)
            if number is not None and self.caller is not None:
                self.caller.called.append(number)
            elif number is None and self.inside and source is not None:  # without a name: what it was made of, then
                self.caller.called += [n for n in source[2] if isinstance(n, int)]

    def _unnamed(self, part, source, i, name):
        """Record what stands at place i of a `return` (None: alone), under a name that says what it is."""
        if self.method in ("forward", "__call__"):
            return self._set(name_of_output(self.me, i or 0), part, "returned", source)
        if self.inside:  # whoever called will give it a name; but its numbers may be known by now, in another shape
            return self._known_as(part)
        if self.method != "backward":
            return self._set(name or self.method, part, "returned", source)
        parts = enumerate(part) if isinstance(part, tuple) and i is None else [(i or 0, part)]
        numbers = [self._set(name_of_gradient(self.me, j), piece, "returned", source) for j, piece in parts]
        return numbers[0] if len(numbers) == 1 else None

    def _known_as(self, value):
        """The last record that holds the same numbers as an array, of what this call knows; None if there is none."""
        if not is_array(value) or value.size < 2:
            return None
        content = to_numpy(value).tobytes()
        records, numbers = self.recorder.records, [*self.known.values(), *(n for n in self.called if n is not None)]
        alike = (n for n in reversed(numbers) if records[n].value.dtype == value.dtype)
        return next((n for n in alike if records[n].value.tobytes() == content), None)

    def _set(self, variable, value, role, source, always=False):
        """Record the arrays of a value under a name; return the number of the last record."""
        self.objects[variable] = value
        number = None
        for suffix, array in arrays_in(value):
            number = self._record(variable + suffix, array, role, source, always)
            self.known[variable] = self.known[variable + suffix] = number
        return number

    def _record(self, variable, array, role, source, always):
        recorder, key = self.recorder, (self.module, variable)
        number, held = recorder.latest.get(key, (None, None))
        again = not always and number is not None and (held is array or array.ndim == 0)
        if again and same_bits(recorder.records[number].value, to_numpy(array)):
            return number
        self.counts[variable] = count = self.counts.get(variable, 0) + 1
        if recorder.replace is not None:
            other = recorder.replace(self, variable, count, array)
            if other is not None:
                self.values[variable] = array = other
                self.objects[variable] = other
        copy = np.array(to_numpy(array))
        copy.setflags(write=False)
        recorder.latest[key] = (len(recorder.records), array)
        statement, place, inputs, sizes, pieces = source or (None, 0, (), {}, {})
        line = self.line if statement is None else statement.line
        recorder.records.append(
            Record(
                recorder.phase,
                self.module,
                self.kind,
                self.method,
                variable,
                role,
                copy,
                statement,
                place,
                self.file,
                line,
                inputs,
                self.number,
                always,
                sizes,
                pieces,
            )
        )
        return len(recorder.records) - 1

    def _inputs(self, statement, i, known):
        """What was read for target i of the statement: numbers of records, and dotted names of parameters."""
        found = []
        for name in statement.reads_for(i):
            if name in known:
                found += [known[key] for key in known if key.startswith(f"{name}[")] or [known[name]]
            elif name.startswith("self."):
                parameter = getattr(self.me, name.split(".")[1], None)
                if isinstance(parameter, Parameter) and id(parameter) in self.recorder.parameters:
                    found.append(self.recorder.parameters[id(parameter)])
        found += self._pieces(statement).values()
        return tuple(dict.fromkeys([*found, *(n for n in self.called if n is not None)]))

    def _sizes(self, statement):
        """{name: value} of the whole numbers and shapes that the statement read from variables, or set to count by."""
        values = ((name, self.values.get(name)) for name in (*statement.reads, *statement.targets))
        return {name: value for name, value in values if _is_size(value)}

    def _pieces(self, statement):
        """{"states[t]": number}: of what was put into arrays that are still being filled, what the statement read."""
        found = {}
        for text, code in statement.pieces:
            numbers = self.recorder.put.get(id(self.values.get(text.partition("[")[0])), ())
            piece = self._value(code) if numbers else None
            for number in reversed(numbers if piece is not None else ()):
                if same_bits(self.recorder.records[number].value, to_numpy(piece)):
                    found[text] = number
                    break
        return found

    def _count_products(self, statement):
        """Note how many numbers the statement's matrix products multiply, from the shapes of their two sides."""
        for product in statement.products:
            shapes = [self._shape(code) for code in (product.left, product.right)]
            self.recorder.products.append((self.recorder.phase, self.module, self.kind, shapes, statement))

    def _shape(self, code):
        return None if code is None else getattr(self._value(code), "shape", None)

    def _value(self, code):
        try:
            with np.errstate(all="ignore"):
                return eval(code, self.globals, self.values)
        except Exception:  # what is wrong with it, Python will say when the statement itself runs
            return None


def _is_wanted(code):
    """Say whether it is a function that may be a method, and no generator; those of Module itself do no computing."""
    if not code.co_argcount or code.co_flags & SKIPPED or code.co_filename == contract.__file__:
        return False
    return code.co_filename == KERNELS or _is_method(code)


def _is_method(code):
    """Say whether it is a function written in a class, or one whose first argument is called self; no special one."""
    if code.co_name.startswith(("__", "<")):
        return code.co_name == "__call__"
    owner = code.co_qualname.rpartition(".")[0]
    return code.co_varnames[0] == "self" or (owner != "" and not owner.endswith("<locals>"))


def arrays_in(value):
    """Yield (suffix, array): the array itself with "", those of a tuple, list or dictionary with "[0]", "[1]" ..

    A tuple or list of one array is that array. Python floats count as arrays, integers and booleans do not.
    """
    if is_array(value) and value.dtype != object:
        yield "", value
    elif isinstance(value, (float, np.floating)):
        yield "", np.asarray(value)
    elif isinstance(value, (tuple, list)) and len(value) == 1:
        yield from arrays_in(value[0])
    elif isinstance(value, (tuple, list)):
        for i, part in enumerate(value):
            yield from ((f"[{i}]{suffix}", array) for suffix, array in arrays_in(part))
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from ((f"[{key}]{suffix}", array) for suffix, array in arrays_in(part))


def _is_size(value):
    """Say whether it is a whole number, or a shape: a tuple of them."""
    parts = value if isinstance(value, tuple) else (value,)
    return all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in parts)


def same_bits(a, b):
    """Say whether two arrays hold the same bits, NaN included."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
