"""What a check cannot see: special points at which wrong and right gradients agree.

At gamma = 1 nobody can tell whether backward multiplied by gamma; with an all-ones upstream gradient the true
gradient of a softmax is zero, and so is that of a backward that returns zeros. The checker leaves such points where
it may: parameters that are all ones or zeros are drawn afresh for the check. Where it may not, it says what was not
tested.
"""

import math

import numpy as np

from ..backend import array_module
from .trees import differentiable
from .trial import identical

ENOUGH = 1e-7  # an output that moves by less than this share of its size does not count as moving


def is_special(x):
    """Say whether all entries are equal: ones, zeros, or any other constant."""
    return x.size > 0 and bool((x == x.ravel()[0]).all())


def randomize(trial, rng):
    """Draw the special parameters afresh; return their names. Values that break forward are put back.

    Parameters are those of the object, or the arguments of a function after the first: `gamma`, `beta`, `b`.
    """
    changed = []
    for w in trial.arrays:
        if w.slot is None and not _is_argument(trial, w):
            continue
        x = trial.value(w)
        if not is_special(x):
            continue
        before, xp = x.copy(), array_module(x)
        noise = rng.standard_normal(x.shape) / 2 if x.size > 1 else rng.uniform(0.25, 0.75, x.shape)
        trial.place(w, xp.asarray(before + xp.asarray(noise, x.dtype), x.dtype))
        if all(bool(xp.isfinite(y).all()) for y in trial.forward() if differentiable(y)):
            changed.append(w.name)
        else:
            trial.place(w, before)
    return changed


def _is_argument(trial, w):
    """Whether an input of a function pair stands for a parameter: any float argument but the first, not a scalar."""
    return trial.layer is None and w.leaf > 0 and trial.value(w).ndim > 0 and trial.subject.takes_upstream


def special_points(trial):
    """Name the arrays that sit at a special point: (name, "ones" or "zeros" or "one value", is it a parameter)."""
    found = []
    for w in trial.arrays:
        x = trial.value(w)
        if is_special(x) and x.size > 1:
            value = float(x.ravel()[0])
            word = {0.0: "all zeros", 1.0: "all ones"}.get(value, "one value everywhere")
            found.append((w, word, w.slot is not None or _is_argument(trial, w)))
    return found


def weaknesses(trial):
    """List in words what these shapes hide, even where the check passes."""
    notes, square = [], []
    for w in trial.arrays:
        shape = trial.value(w).shape
        if w.slot is not None and len(shape) == 2 and shape[0] == shape[1] > 1:
            square.append(w.name)
        elif w.slot is None and len(shape) > 1 and 1 in shape[:-1]:
            axis = shape.index(1)
            what = "a batch" if axis == 0 else f"an axis {axis}"
            notes.append(f"{w.name} has {what} of length 1: a missing sum or a factor 1/n over it cannot show")
    if square:
        notes.append(
            f"square weights ({some(square)}): a transposed gradient has the same shape and shows only by its values"
        )
    return notes


def without_gradient(trial, rng):
    """Say which float arrays the output depends on although backward stores no gradient for them.

    They may be constants. A layer that lists its parameters itself has told which are.
    """
    if callable(getattr(trial.layer, "parameters", None)) or callable(getattr(trial.layer, "named_parameters", None)):
        return []
    listed = {id(array) for w in trial.arrays if w.slot is not None for array in [w.slot.get()]}
    base, found = trial.forward(), []
    for (_, attribute, key), (array, values) in trial.held.items():
        if id(array) in listed or not array.size or not array.flags.writeable or not identical(array, values):
            continue
        array += array_module(array).asarray(rng.standard_normal(array.shape), array.dtype)
        try:
            outputs = trial.forward()
        except (ValueError, IndexError, TypeError, FloatingPointError):
            continue
        finally:
            array[...] = values
        if any(_moves(a, b) for a, b in zip(outputs, base, strict=True) if differentiable(a)):
            name = attribute if key is None else f"{attribute}[{key!r}]"
            found.append(
                f"the output depends on {name}, and backward stores no gradient for it (as d{attribute}, say): is it a "
                "parameter?"
            )
    return found


def some(names, most=4):
    """The first few of many names."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def why_untested(trial, w, rng):
    """Say why the outputs do not depend on an array: a reason if another point would test it, "" if it never matters.

    A key bias of attention never matters, since softmax ignores what is added to a whole row: that is a true zero.
    """
    if trial.value(w).ndim and trial.value(w).shape[-1] == 1:
        return f"the last axis of {w.name} has length 1"
    constant = [i for i, x in enumerate(trial.inputs) if differentiable(x) and is_special(x) and x.size > 1]
    if constant:
        inputs = [_drawn(x, rng) if i in constant else x for i, x in enumerate(trial.inputs)]
        if _matters(trial, w, inputs, rng):
            names = ", ".join(trial.names[i] for i in constant)
            zeros = all(not bool(trial.inputs[i].any()) for i in constant)
            return f"{names} {'is all zeros' if zeros else 'is constant'}"
    for axis in range(max((x.ndim for x in trial.inputs), default=0)):
        short = [i for i, x in enumerate(trial.inputs) if x.ndim > axis and x.shape[axis] == 1]
        if not short:
            continue
        inputs = [_longer(x, axis, rng) if i in short else x for i, x in enumerate(trial.inputs)]
        if _matters(trial, w, inputs, rng):
            return f"axis {axis} of {', '.join(trial.names[i] for i in short)} has length 1"
    return ""


def _drawn(x, rng):
    return array_module(x).asarray(rng.standard_normal(x.shape), x.dtype)


def _longer(x, axis, rng):
    xp = array_module(x)
    longer = xp.repeat(x, 3, axis)
    return longer + _drawn(longer, rng) if differentiable(x) else longer


def _matters(trial, w, inputs, rng):
    """Whether the outputs move with an array at other inputs; an input that does not fit the subject proves nothing."""
    x = trial.value(w) if w.slot is not None else inputs[w.leaf]
    xp = array_module(x)
    moved = x + xp.asarray(rng.standard_normal(x.shape), x.dtype)
    try:
        before = trial.forward(inputs)
        if w.slot is None:
            after = trial.forward([moved if i == w.leaf else v for i, v in enumerate(inputs)])
        else:
            kept = x.copy()
            try:
                trial.place(w, moved)
                after = trial.forward(inputs)
            finally:
                trial.place(w, kept)
    except (ValueError, IndexError, TypeError):
        return False
    return any(_moves(a, b) for a, b in zip(after, before, strict=True) if differentiable(a))


def _moves(a, b):
    xp = array_module(a)
    size = math.sqrt(float((b * b).mean())) if b.size else 0.0
    return bool((xp.abs(a - b) > ENOUGH * max(size, np.finfo(float).tiny)).any())


def look_for_vacuity(check):
    """Turn a pass that tested nothing into VACUOUS, and say what else was weak."""
    report, trial = check.report, check.trial
    reports = dict(zip([w.name for w in trial.arrays], report.arrays, strict=True))
    passed = [
        w
        for w in trial.arrays
        if reports[w.name].status == "PASS" and check.reference.gradients[w.name] is not None and trial.value(w).size
    ]
    untested = [w for w in passed if not reports[w.name].tested]
    for w in untested:
        reason = why_untested(trial, w, check.rng)
        if reason:
            _vacuous(reports[w.name], f"its gradient is zero here because {reason}, so nothing was tested")
        else:
            reports[w.name].note = "the output does not depend on it, and its gradient is zero"
    for w in passed:
        if w not in untested and reports[w.name].flat and check.upstream is not None:
            _vacuous(
                reports[w.name],
                "this upstream gradient makes the true gradient zero: nothing was tested; "
                "leave `upstream` out and a random one is drawn",
            )
    if (
        report.arrays
        and all(not a.tested for a in report.arrays if a.status != "FAIL")
        and not any(a.status in ("FAIL", "SHAPE", "KINK") for a in report.arrays)
    ):
        for a in report.arrays:
            _vacuous(a, a.note or "the output depends on nothing here")
    for w, word, is_parameter in special_points(trial):
        if is_parameter and word == "all ones" and reports[w.name].status == "PASS":
            _vacuous(
                reports[w.name],
                "it is all ones, where a backward that forgets it cannot be told from a right "
                "one: give it random values, or leave randomize=True",
            )
        else:
            report.warnings.append(f"{w.name} is {word}, which hides mistakes")
    if check.upstream is not None and all(bool((dy == dy.ravel()[:1]).all()) for dy in check.reference.dys):
        report.warnings.append("the upstream gradient is one number everywhere, which hides mistakes: leave it out")
    report.warnings += weaknesses(trial)
    report.warnings += without_gradient(trial, check.rng)
    if check.redrawn:
        report.notes.append(f"drawn afresh for the check, since constants hide mistakes: {some(check.redrawn)}")


def _vacuous(array, note):
    array.status, array.note = "VACUOUS", note
