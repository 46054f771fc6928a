"""After a failure: which layer, which entries, and what mistake would give just this."""

import numpy as np

from ..backend import array_module, to_numpy
from .differences import WRONG
from .evidence import Evidence
from .judging import LATER
from .locate import locate, numeric_gradient, wrong_entries
from .overwritten import overwritten
from .trees import differentiable
from .walk import record, sublayers
from .witnesses import taylor

WHOLE = 1024  # up to this many entries a wrong gradient is compared entry by entry
WIRING = "its parts pass, so look at how it puts them together"


def detail(check):
    """Fill in the culprit, the wrong entries, and the diagnoses of a failed check."""
    layer, wrong = check.trial.layer, wrong_arrays(check)
    if layer is not None and sublayers(layer) and not check.parts_pass:
        if blame(check, contracts=not wrong):
            return
        if wrong:
            check.report.culprit = f"{check.report.subject}: {WIRING}"
    for watched, array in wrong:
        find_entries(check, watched, array)
    diagnose(check)


def wrong_arrays(check):
    """The (watched, report) pairs whose gradient is wrong."""
    by_name = {w.name: w for w in check.trial.arrays}
    return [(by_name[a.name], a) for a in check.report.arrays if a.status in ("FAIL", "SHAPE")]


def blame(check, contracts=False):
    """Check each sub-layer with what it really got; keep the first wrong one. Returns whether there is one.

    Parts come before the whole, so a composite that is wrong has parts that pass.
    """
    trial = check.trial
    _, finished = record(trial.layer, lambda: trial.gradients(check.reference.dys))
    found = False
    for call in finished:
        if call.upstream and len(call.upstream) != sum(map(differentiable, call.outputs)):
            continue
        inner = type(check)(
            upstream=call.upstream or None,
            seed=check.seed,
            dtype=check.dtype,
            randomize=False,
            contracts=contracts,
            skip=check.skip,
            parts_pass=True,
        )
        inner.call = {"parameters": None, "replay": False, "reseed": check.trial.reseed}
        report = inner.run(call.layer, call.args, call.kwargs)
        trial.forwards += report.forwards
        if report.status in ("FAIL", "SHAPE", "MUTATED"):
            composite = f": {WIRING}" if sublayers(call.layer) else ""
            check.report.culprit = f"{call.path} ({type(call.layer).__name__}){composite}"
            check.report.culprit_report, found = report, True
            break
    trial.gradients(check.reference.dys)
    return found


def find_entries(check, watched, array):
    """Compare a wrong gradient entry by entry, all of them where there are not too many, else by group testing."""
    gradient = check.reference.gradients[watched.name]
    fits = gradient is not None and differentiable(gradient) and gradient.shape == array.shape
    array.analytic = None if gradient is None else to_numpy(gradient)
    size = int(np.prod(array.shape))
    if fits:
        check.differences.allow_rounding_of(gradient, check.trial.dtype)
    if size <= WHOLE:
        array.numeric, array.bar, verdicts = numeric_gradient(check.differences, watched, gradient if fits else None)
        if fits:
            array.entries, array.n_wrong = wrong_entries(gradient, array.numeric, array.bar, verdicts)
    elif fits:
        array.entries, more = locate(check.differences, watched, gradient)
        wrong = sum(e.verdict == WRONG for e in array.entries)
        array.n_wrong = None if more else wrong
        if more:
            array.note = array.note or f"at least {wrong} entries are wrong"
    if fits and array.slopes:
        direction = check.differences.direction(watched)
        array.taylor = taylor(check.trial, check.reference, {watched: direction}, check.differences.epsilon)
        swept = [check.differences.measure(watched, direction, gradient, 10.0**-k) for k in range(1, 9)]
        array.steps = [measured for measured in swept if measured is not None]


def diagnose(check):
    """Ask the diagnosis about each wrong array whose right gradient is known in full."""
    from .diagnosis import diagnose as explain

    trial, reference = check.trial, check.reference
    wrong = [(w, a) for w, a in wrong_arrays(check) if a.numeric is not None and a.analytic is not None]
    if not wrong:
        return
    numeric = {w.name: right_gradient(check, w) for w in trial.arrays}
    numeric = {name: g for name, g in numeric.items() if g is not None}
    previous = earlier_gradients(check)
    host = {w.name: np.array(to_numpy(trial.value(w))) for w in trial.arrays}
    inputs = {n: np.array(to_numpy(x)) for n, x in zip(trial.names, trial.inputs, strict=True)}
    layer = trial.layer
    attributes = (
        {n: v for n, v in vars(layer).items() if isinstance(v, (int, float, str, bool))}
        if hasattr(layer, "__dict__")
        else {}
    )
    for w, array in wrong:
        evidence = Evidence(
            name=w.name,
            kind=w.kind,
            analytic=array.analytic,
            numeric=array.numeric,
            error_bar=array.bar,
            inputs=inputs,
            parameters={v.name: host[v.name] for v in trial.arrays if v.slot is not None},
            output=to_numpy(reference.outputs[0]),
            dy=to_numpy(reference.dys[0]),
            analytic_all={
                n: to_numpy(g) for n, g in reference.gradients.items() if g is not None and differentiable(g)
            },
            numeric_all=numeric,
            attributes=attributes,
            class_name=trial.subject.name,
            previous=previous.get(w.name),
            right_before=array.note == LATER,
        )
        try:
            array.diagnoses = overwritten(trial, w, array, reference.dys) or list(explain(evidence))
        except Exception as error:  # the verdict stands; only its explanation is missing
            check.report.notes.append(f"no diagnosis of {w.name}: {type(error).__name__}: {error}")


def right_gradient(check, watched):
    """The right gradient of an array in full: the analytic one where it passed, differences where they were taken."""
    array = next(a for a in check.report.arrays if a.name == watched.name)
    if array.numeric is not None:
        return array.numeric
    gradient = check.reference.gradients[watched.name]
    return to_numpy(gradient) if array.status == "PASS" and gradient is not None else None


def earlier_gradients(check):
    """The gradients of a call with other inputs, which a stale gradient would equal; none where it does not run, nor
    of an array whose right gradient is the same there: that it did not change is no fault."""
    trial = check.trial
    rng = np.random.default_rng(check.seed + 1)
    others = [
        x + array_module(x).asarray(rng.standard_normal(x.shape), x.dtype) if differentiable(x) else x
        for x in trial.inputs
    ]
    try:
        _, gradients, _ = trial.gradients(check.reference.dys, others)
        moved = [w.name for w in trial.arrays if slope_depends_on_inputs(check, w, others)]
    except (ValueError, IndexError, RuntimeError):
        return {}
    return {n: to_numpy(g) for n, g in gradients.items() if n in moved and g is not None and differentiable(g)}


def slope_depends_on_inputs(check, watched, others):
    """Whether the right gradient of an array is another one at other inputs, along one direction."""
    trial, direction, h = check.trial, check.differences.direction(watched), check.differences.step
    here = trial.inputs

    def slope(inputs):
        trial.inputs = list(inputs)
        base, ends = trial.value(watched).copy(), []
        for end in (base + h * direction, base - h * direction):
            trial.place(watched, end)
            ends.append(sum(float((dy * y).sum()) for dy, y in zip(check.reference.dys, trial.forward(), strict=True)))
        trial.place(watched, base)
        return (ends[0] - ends[1]) / (2 * h)

    try:
        first, second = slope(here), slope(others)
    finally:
        trial.inputs = here
    return abs(first - second) > 1e-4 * (abs(first) + abs(second))
