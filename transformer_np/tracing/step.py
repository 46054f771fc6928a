"""One step of a trace: an array, when and where it was made, and from what."""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Step:
    """One array that a method was given, made or returned, as it was at that moment.

    index: its place in the trace. phase: "forward", "loss" or "backward". module: the dotted name of the layer, "" for
    the model itself, "loss" for the loss. kind: the layer's class. method: "forward", "backward", "encode" ..
    variable: its name in the source. name: module and variable, unique in the trace. A variable that is set several
    times has its last value under the plain name and the others under name.1, name.2 .. in order.
    role: "argument", "assigned", "returned", or "gradient" for that of a parameter, after something was added to it.
    value: the array, read-only; arrays of a GPU are brought here. source, file, line: the statement that made it.
    inputs: the names of the steps and parameters that the statement read, and of what the calls in it returned.
    letters: the shape in letters, where a comment in the source gives it. call: to which call of a method of this layer
    it belongs, counted from 0. sizes: {"t": 3}, the whole numbers and shapes that the statement read. pieces:
    {"states[t]": name}, the step whose value stood in the place that it read, of an array that was being filled.
    """

    index: int
    phase: str
    module: str
    kind: str
    method: str
    variable: str
    name: str
    role: str
    value: np.ndarray = field(repr=False)
    source: str
    file: str = field(repr=False)
    line: int = field(repr=False)
    inputs: tuple = ()
    letters: str = ""
    call: int = field(default=0, repr=False)
    sizes: dict = field(default_factory=dict, repr=False)
    pieces: dict = field(default_factory=dict, repr=False)


def steps_of(records, aliases=()):
    """Number a Recorder's records; return the Steps, and {every name that a step goes by: its index}.

    The plain name belongs to the last value in the phase in which the name first appears, so that a layer's "x" stays
    that of forward, whatever backward calls x again.
    """
    groups = defaultdict(list)
    for i, record in enumerate(records):
        groups[record.module, record.variable].append(i)
    names, index = {}, {}
    for (module, variable), numbers in groups.items():
        plain = f"{module}.{variable}" if module else variable
        first_phase = [i for i in numbers if records[i].phase == records[numbers[0]].phase]
        for k, i in enumerate(numbers, start=1):
            names[i] = plain if i == first_phase[-1] else f"{plain}.{k}"
            index[f"{plain}.{k}"] = i
    index |= {name: i for i, name in names.items()}
    for module, variable, i, _ in aliases:
        index.setdefault(f"{module}.{variable}" if module else variable, i)
    return [_step(i, record, names) for i, record in enumerate(records)], index


def _step(i, record, names):
    statement = record.statement
    inputs = tuple(dict.fromkeys(names[n] if isinstance(n, int) else n for n in record.inputs))
    return Step(
        i,
        record.phase,
        record.module,
        record.kind,
        record.method,
        record.variable,
        names[i],
        record.role,
        record.value,
        "" if statement is None else statement.source,
        record.file,
        record.line,
        inputs,
        letters_of(record.value, "" if statement is None else statement.letters_for(record.place)),
        record.call,
        record.sizes,
        {text: names[number] for text, number in record.pieces.items()},
    )


def letters_of(value, letters):
    """Return the comment's "(B, T, D)" if it has as many axes as the array; "..." stands for any number."""
    axes = [axis.strip() for axis in letters.strip("()").split(",") if axis.strip()]
    fits = len(axes) - 1 <= value.ndim if "..." in axes else len(axes) == value.ndim
    return letters if fits and axes else ""
