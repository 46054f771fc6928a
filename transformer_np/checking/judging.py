"""Judging the gradient of each array by itself, at one point and at a second."""

import numpy as np

from ..backend import array_module
from .contracts import Reference
from .differences import KINK, OK, UNDECIDED, WRONG, Differences
from .first_run import Stop, finite
from .locate import locate, numeric_gradient, wrong_entries
from .report import ArrayReport
from .trees import differentiable
from .witnesses import complex_step, taylor

MOVE = 1 / 3  # how far the second point is from the first, in units of each array
FEW_ENTRIES = 256  # up to this many entries a kink is sought entry by entry, else by group testing
LATER = "right at the first point, wrong at a second one"
SINGLE = 1e-11  # a relative noise above this means that something computes in less than float64


def judge_arrays(check):
    """Judge the gradient of every array by itself, along a few random directions."""
    for problem, words in check.problems:
        if problem == "count":
            raise Stop("SHAPE", words)
    check.complex_works = True
    for w in check.trial.arrays:
        check.report.arrays.append(judge_array(check, w))
    hear_taylor(check)
    for _ in range(check.points - 1):
        if {a.status for a in check.report.arrays} <= {"PASS", "KINK"} and look_again(check):
            hear_taylor(check)
            return


def judge_array(check, w):
    """Return the `ArrayReport` of one array."""
    shape = tuple(check.trial.value(w).shape)
    gradient = check.reference.gradients[w.name]
    if gradient is None or not differentiable(gradient) or tuple(gradient.shape) != shape:
        return _judge_misfit(check, w, gradient, shape)
    out = ArrayReport(w.name, w.kind, shape)
    if not gradient.size:
        out.note = "empty"
        return out
    check.differences.allow_rounding_of(gradient, check.trial.dtype)
    if check.differences.analytic_epsilon > check.differences.epsilon:
        check.report.warnings.append(f"the gradient of {w.name} is {gradient.dtype.name}, less exact than the rest")
    gradient = gradient.astype(check.trial.dtype, copy=False)
    judged = []
    for _ in range(check.directions):
        direction = check.differences.direction(w)
        judged.append(check.differences.judge(w, direction, gradient))
        if judged[-1].verdict == WRONG:
            break
    out.slopes = [(j.best.analytic, j.best.value, j.best.bar) for j in judged if j.best]
    out.steps = max((j.steps for j in judged), key=len)
    out.tested = any(j.tested for j in judged)
    out.flat = all(m.off <= m.bar and abs(m.value) <= m.bar < 1e-3 * m.scale for j in judged for m in j.steps[:1])
    verdicts = {j.verdict for j in judged}
    if WRONG in verdicts:
        out.status = "FAIL"
    elif verdicts & {KINK, UNDECIDED}:
        _look_past_kinks(check, w, gradient, out)
    if verdicts == {OK}:
        _hear_witness(check, w, gradient, direction, out)
    return out


def look_again(check):
    """Judge every array at another point; stay there and return True if something is wrong, else go back."""
    trial, reference, differences = check.trial, check.reference, check.differences
    base = {w: trial.value(w).copy() for w in trial.arrays}
    parameters = [w for w in trial.arrays if w.slot is not None]
    run = _run_at(check, trial.arrays, base) or (_run_at(check, parameters, base) if parameters else None)
    if run is not None:
        check.reference = run
        check.differences = Differences(trial, check.dys, run.outputs, check.rng, differences.epsilon)
        check.differences.allow_residue(run.gradients)
        for array, w in zip(check.report.arrays, trial.arrays, strict=True):
            gradient = run.gradients[w.name]
            if gradient is None or not gradient.size or gradient.shape != array.shape:
                continue
            check.differences.allow_rounding_of(gradient, trial.dtype)
            judged = check.differences.judge(
                w, check.differences.direction(w), gradient.astype(trial.dtype, copy=False)
            )
            if judged.verdict == WRONG:
                array.status, array.note = "FAIL", LATER
                array.slopes, array.steps = (
                    [(judged.best.analytic, judged.best.value, judged.best.bar)],
                    judged.steps,
                )
        if any(a.status == "FAIL" for a in check.report.arrays):
            return True
    _go_back(check, base)
    check.reference, check.differences = reference, differences
    return False


def _run_at(check, moved, base):
    """Move some arrays and run; None (and back again) where the subject does not take that point."""
    trial = check.trial
    for w in moved:
        trial.place(w, base[w] + MOVE * check.differences.direction(w))
    try:
        outputs, gradients, returned = trial.gradients(check.dys)
    except (ValueError, IndexError, TypeError, RuntimeError, FloatingPointError):
        outputs = []
    same_shapes = [y.shape for y in outputs] == [y.shape for y in check.reference.outputs]
    if same_shapes and all(finite(y) for y in outputs if differentiable(y)):
        return Reference(outputs, check.dys, gradients, returned)
    _go_back(check, base)
    return None


def _go_back(check, base):
    for w, x in base.items():
        check.trial.place(w, x)


def _judge_misfit(check, w, gradient, shape):
    """A gradient that is missing or has the wrong shape; None is right for an array that does not matter."""
    out = ArrayReport(w.name, w.kind, shape)
    judged = check.differences.judge(w, check.differences.direction(w), array_module(check.trial.value(w)).zeros(shape))
    out.tested, out.flat = judged.tested, False
    if gradient is None:
        if judged.verdict == OK:
            return out
        out.status, out.note = "FAIL", "backward gives no gradient (None), but the output depends on it"
    else:
        got = f"shape {tuple(gradient.shape)}" if hasattr(gradient, "shape") else f"a {type(gradient).__name__}"
        if hasattr(gradient, "shape") and tuple(gradient.shape) == shape:
            got = f"dtype {gradient.dtype.name}"
        out.status, out.note = "SHAPE", f"its gradient must be a float array of shape {shape}, got {got}"
    return out


def _look_past_kinks(check, w, gradient, out):
    """Find the entries at a kink, leave them out, and judge the others."""
    if check.differences.epsilon > SINGLE:
        out.status = "KINK"
        out.note = "the steps that this precision needs cross a kink, so nothing can be decided: check in float64"
        return
    keep = np.ones(out.shape)
    if keep.size <= FEW_ENTRIES:
        numeric, bar, verdicts = numeric_gradient(check.differences, w, gradient)
        out.entries, out.n_wrong = wrong_entries(gradient, numeric, bar, verdicts)
        keep[verdicts != OK] = 0
    else:
        out.entries, _ = locate(check.differences, w, gradient)
        out.n_wrong = sum(e.verdict == WRONG for e in out.entries)
        for e in out.entries:
            keep[e.index] = 0
    xp = array_module(gradient)
    mask = xp.asarray(keep, check.trial.dtype)
    rest = check.differences.judge(w, check.differences.direction(w, mask), gradient) if keep.any() else None
    if out.n_wrong or (rest is not None and rest.verdict == WRONG):
        out.status = "FAIL"
        return
    if not out.entries and (rest is None or rest.verdict == OK):
        return
    out.status = "KINK"
    places = ", ".join(str(list(e.index)) for e in out.entries[:4])
    out.note = (
        f"no derivative at {places}" + (" and more" if len(out.entries) > 4 else "")
        if places
        else "the differences do not settle as the step shrinks"
    )


def _hear_witness(check, w, gradient, direction, out):
    """The complex step, where forward lets it through; after one refusal it is not asked again."""
    if not check.complex_works or check.trial.dtype != np.float64:
        return
    value = complex_step(check.trial, check.reference.dys, w, direction)
    if value is None:
        check.complex_works = False
        return
    _, n, bar = out.slopes[-1]
    slope = float((gradient * direction).sum())
    if abs(value - slope) > 10 * bar + 1e-9 * abs(slope):
        check.report.notes.append(
            f"the complex step disagrees for {w.name}: it gives {value:.6g}, differences {n:.6g}; "
            "forward probably uses abs, var or another function that drops the imaginary part, "
            "so this witness does not count"
        )
    else:
        out.complex_slope = (value, slope)


def hear_taylor(check):
    """The Taylor rate, along one direction through every array at once."""
    usable = [w for w, a in zip(check.trial.arrays, check.report.arrays, strict=True) if a.slopes]
    if usable:
        check.report.taylor = taylor(
            check.trial, check.reference, {w: check.differences.direction(w) for w in usable}, check.differences.epsilon
        )
