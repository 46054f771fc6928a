"""The first runs of a check: does it run, is it repeatable, does it leave alone what is not its own, is it finite?

Each function takes the `Check`; what it finds ends the check by `Stop`, or goes on in `check.reference`.
"""

import traceback
from pathlib import Path

import numpy as np

from ..backend import array_module
from .contracts import Reference, same
from .trees import differentiable, leaves
from .trial import flat, identical
from .vacuity import randomize, some
from .walk import first_nonfinite, record, sublayers

# Of an error that comes to light in NumPy, or in a layer of this package, the line that called it tells more.
NUMPY, HERE = str(Path(np.__file__).parent), str(Path(__file__).parents[1])


class Stop(Exception):
    """Ends a check before anything can be compared."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status, self.message = status, message


def attempt(check, what, function, *args):
    """Call the subject; an exception of its own becomes the outcome ERROR, with the place it came from."""
    try:
        return function(*args)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        theirs = [frame for frame in frames if not frame.filename.startswith((NUMPY, HERE))]
        frames = theirs or [frame for frame in frames if not frame.filename.startswith(NUMPY)]
        place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
        raise Stop("ERROR", f"{what} raised {type(error).__name__}: {error}{place}") from error


def first_run(check):
    """Run forward twice and backward once: does it run, is it repeatable, does it leave other arrays alone?"""
    trial = check.trial
    before = [x.copy() for x in trial.inputs]
    held = [(slot, slot.get().copy()) for slot in trial.slots]
    outputs = attempt(check, "forward", trial.forward)
    if not any(differentiable(y) for y in outputs):
        whole = [n for n, x in zip(trial.names, trial.inputs, strict=True) if not differentiable(x)]
        hint = f"; {some(whole)} holds no floats" if whole and len(whole) == len(trial.names) else ""
        if trial.subject.tree is None:
            hint = " but nothing at all: is its `return` missing?"
        raise Stop("ERROR", "forward returned no float array" + hint)
    first = [y.copy() for y in outputs]
    _look_for_mutation(check, "forward", before, held)
    again = attempt(check, "forward", trial.forward)
    _compare_runs(check, first, again)
    dys = upstream_for(check, again)
    copies = [dy.copy() for dy in dys]
    kept = [y.copy() for y in again]
    after_forward = trial.snapshot()
    _look_at_what_backward_takes(trial, n_outputs=len(again))
    returned = attempt(check, "backward", trial.backward, dys)
    _look_for_stubs(check, returned)
    _look_for_changed_parameters(check, after_forward)
    _look_for_mutation(check, "backward", before, held)
    _look_for_mutated(check, "dy, the upstream gradient,", "backward", dys, copies)
    _look_for_mutated(check, "the output of forward", "backward", again, kept)
    _look_for_learning(check, after_forward, kept)
    check.dys = copies
    attempt(check, "forward", trial.find_arrays)
    if check.only is not None:
        trial.arrays = [w for w in trial.arrays if w.name == check.only]
    if not trial.arrays:
        raise Stop("VACUOUS", _nothing_to_differentiate(check))


def _nothing_to_differentiate(check):
    ints = [f"{n} is {x.dtype.name}" for n, x in zip(check.trial.names, check.trial.inputs, strict=True)]
    return (
        "there is nothing to differentiate: no float input"
        + (f" ({', '.join(ints)})" if ints else "")
        + " and no parameter with a gradient"
    )


def _compare_runs(check, first, again):
    if len(first) != len(again) or any(a.shape != b.shape for a, b in zip(first, again, strict=True)):
        raise Stop("NONDETERMINISTIC", "two forwards with the same inputs give outputs of different shapes")
    for a, b in zip(first, again, strict=True):
        if not differentiable(a) or bool(((a == b) | ((a != a) & (b != b))).all()):
            continue
        if not same(a, b, 2.2e-16):
            raise Stop(
                "NONDETERMINISTIC",
                "two forwards with the same inputs differ: dropout, another random number, or something that forward "
                "itself changes and reads again, such as running statistics. " + _replay_offer(check),
            )


def _replay_offer(check):
    how = "gradcheck(..., replay=True) keeps the masks of the first forward"
    return how + (
        ""
        if callable(getattr(check.trial.layer, "replay_dropout", None))
        else " if the layer holds its random generator or uses np.random; else give reseed=function"
    )


def _look_for_mutation(check, who, before, held):
    _look_for_mutated(check, None, who, check.trial.inputs, before)
    for slot, values in held:
        if not identical(slot.get(), values):
            slot.get()[...] = values
            raise Stop("MUTATED", f"{who} changes the parameter {slot.name}; only an optimizer may")


def _look_for_stubs(check, returned):
    """Where an exercise left `...`, say that it is still to be written, and not that it has the wrong shape."""
    left = [name for holder, _ in check.trial.attributes for name, value in vars(holder).items() if value is ...]
    parts = flat(returned)
    one_each = len(parts) == len(check.trial.names)
    names = [f"the gradient of {n}" for n in check.trial.names] if one_each else ["what it returns"] * len(parts)
    left += dict.fromkeys(name for name, part in zip(names, parts, strict=True) if part is ...)
    if left:
        raise Stop("ERROR", f"backward is not finished, still `...`: {some(left)}")


def _look_for_changed_parameters(check, after_forward):
    """Parameters that came to light with the first backward: did it change them, or did forward before?"""
    for slot in check.trial.subject.parameters():
        for place in slot.data:
            where = id(place.holder), place.attribute, place.key
            if where in after_forward and not identical(place.get(), after_forward[where][1]):
                raise Stop("MUTATED", f"backward changes the parameter {slot.name}; only an optimizer may")
            array, values = check.trial.held.get(where, (None, None))
            if array is place.get() and array is not None and not identical(array, values):
                raise Stop("MUTATED", f"forward changes the parameter {slot.name}; only an optimizer may")


def _look_at_what_backward_takes(trial, n_outputs):
    """A backward that needs more than the upstream gradient, as a learning rate, cannot be called."""
    if trial.layer is None:
        return
    required, optional = trial.subject.signature
    if optional is not None and len(required) > n_outputs:
        raise Stop(
            "ERROR",
            f"backward({', '.join(required)}) is called with the upstream gradient alone: what else it takes needs a "
            "default. It must not learn by itself: that is an optimizer's part",
        )


def _look_for_learning(check, after_forward, outputs):
    """Whether backward changes something that forward reads, so that the same inputs now give another output."""
    holders = {id(holder): holder for holder, _ in check.trial.attributes}
    changed = []
    for (holder, attribute, key), (_, values) in after_forward.items():
        now = vars(holders[holder]).get(attribute)
        try:
            now = now if key is None else now[key]
        except (KeyError, IndexError, TypeError):
            continue
        if differentiable(now) and not identical(now, values):
            changed.append(attribute)
    if not changed:
        return
    again = attempt(check, "forward", check.trial.forward)
    if any(differentiable(a) and not same(a, b, 2.2e-16) for a, b in zip(again, outputs, strict=True)):
        raise Stop(
            "MUTATED",
            f"backward changes what forward reads ({some(list(dict.fromkeys(changed)))}): the same inputs give another "
            "output afterwards; only an optimizer may change parameters",
        )


def _look_for_mutated(check, what, who, arrays, copies):
    for i, (array, copy) in enumerate(zip(arrays, copies, strict=True)):
        if not identical(array, copy):
            name = what or f"its input {check.trial.names[i]}"
            raise Stop("MUTATED", f"{who} changes {name} in place: work on a copy")


def upstream_for(check, outputs):
    """The upstream gradients: the user's, checked, or random ones."""
    if check.upstream is None:
        return check.trial.draw_upstream(outputs, check.rng)
    given = [g for _, g in leaves(check.upstream)] or [np.asarray(check.upstream)]
    if len(given) != len(outputs) or any(g.shape != y.shape for g, y in zip(given, outputs, strict=True)):
        raise ValueError(f"upstream: got shapes {[g.shape for g in given]}, expected {[y.shape for y in outputs]}")
    return [g.astype(y.dtype) for g, y in zip(given, outputs, strict=True)]


def reference_run(check):
    """Leave special parameters, then run forward and backward once: what everything is compared with."""
    trial = check.trial
    check.redrawn = randomize(trial, check.rng) if check.randomize else []
    outputs, gradients, returned = attempt(check, "backward", trial.gradients, check.dys)
    check.problems = list(trial.problems)
    check.reference = Reference(outputs, check.dys, gradients, returned)
    bad = [n for n, g in gradients.items() if g is not None and differentiable(g) and not finite(g)]
    if not all(finite(y) for y in outputs if differentiable(y)):
        raise Stop("NONFINITE", "the output holds NaN or infinity" + _where_nonfinite(check))
    if bad:
        raise Stop("NONFINITE", f"the gradient of {', '.join(bad)} holds NaN or infinity" + _where_nonfinite(check))


def _where_nonfinite(check):
    if not (check.trial.layer is not None and sublayers(check.trial.layer)):
        return ""
    started, finished = record(check.trial.layer, lambda: check.trial.gradients(check.dys))
    found = first_nonfinite(started, finished)
    return f"; it first appears in the {found[2]} of {found[0]} ({found[1]})" if found else ""


def finite(x):
    """Say whether every entry is finite."""
    return bool(array_module(x).isfinite(x).all())
