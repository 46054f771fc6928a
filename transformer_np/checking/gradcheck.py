"""`gradcheck`: the flow of a check, from the first run to the verdict."""

import time
import traceback

import numpy as np

from ..backend import array_module
from .contracts import Reference, check_contracts, same
from .detail import detail
from .differences import KINK, OK, UNDECIDED, WRONG, Differences, epsilon_of
from .replay import Replay
from .report import ArrayReport, Report, outcome
from .sequences import causality, padding, rows
from .shrink import reproduce
from .trees import differentiable, leaves
from .trial import Trial
from .vacuity import randomize, some, special_points, weaknesses, why_untested
from .walk import first_nonfinite, record, sublayers
from .witnesses import complex_step, taylor

MOVE = 1 / 3  # how far the second point is from the first, in units of each array
FEW_ENTRIES = 256  # up to this many entries a kink is sought entry by entry, else by group testing
SINGLE = 1e-11  # a relative noise above this means that something computes in less than float64


def gradcheck(subject, *inputs, upstream=None, parameters=None, seed=0, dtype="float64", randomize=True, replay=False,
              reseed=None, contracts=True, skip=(), causal=False, padding=None, independent_rows=False, directions=2,
              points=2, explain=True, keywords=None, **forward_keywords):
    """Check a backward against finite differences of its forward, and both against their contracts.

    subject: an object with forward and backward (a layer, a model, a loss: `backward()` may take no upstream gradient), a
    pair of functions `(forward, backward)` in the manner `out, cache = forward(x, w)`, `dx, dw = backward(dout, cache)`,
    or one function that returns `(loss, dx)`. inputs: what forward takes; float arrays are differentiated, integer and
    boolean ones (ids, masks) are not and must get None. Further keywords go to forward (or in the dictionary `keywords`
    where a name is taken here). Everything is put back bit for bit afterwards.

    upstream: the gradient of the output, or a list of them; drawn at random by default, which is far better than ones.
    parameters: {attribute: gradient attribute} where the search in `checking.parameters` does not find them.
    seed: of every random choice here. dtype: that of the check; float64 unless the point is to check float32.
    randomize: draw parameters that are all ones or all zeros (gamma, beta, biases) afresh during the check, because at
    these values many mistakes cannot be seen. replay: freeze randomness such as dropout masks: by the layer's
    `replay_dropout` where it has one, else by rewinding every random generator it holds before each forward. reseed: a
    function to call before each forward instead.
    contracts: also check what forward and backward promise besides numbers; `skip` names contracts to leave out.
    causal: True, or the names of the inputs in time order: outputs must not depend on later inputs.
    padding: boolean (B, S), True at real positions: the others must not matter. independent_rows: rows of the batch must
    not meet. directions: random directions an array. points: with 2, a second look with everything moved by a
    third, since at one point dead units and lucky values hide mistakes. explain: on failure find the entries, the layer and the cause.

    Returns a `Report`: `.ok`, `.status` (PASS, FAIL, KINK, NONDETERMINISTIC, VACUOUS, NONFINITE, SHAPE, MUTATED, ERROR),
    `print(report)`, `.hint(level)`, `.plot()`, `.to_json()`. Raises TypeError where the subject is none of the above,
    ValueError for an upstream gradient that does not fit or a parameter that is not there.
    """
    check = Check(upstream=upstream, seed=seed, dtype=dtype, randomize=randomize, contracts=contracts, skip=tuple(skip),
                  causal=causal, padding=padding, independent_rows=independent_rows, directions=directions,
                  points=points, explain=explain)
    check.call = {"parameters": parameters, "replay": replay, "reseed": reseed}
    return check.run(subject, inputs, {**forward_keywords, **(keywords or {})})


class Stop(Exception):  # noqa: N818  not an error: the check ends early, with an outcome
    """Ends a check before anything can be compared."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status, self.message = status, message


class Check:
    """One check under way: its options, its trial, and the report that grows.

    Beyond the options of `gradcheck`: `only` limits the comparison to one array, by name; `parts_pass` says that the
    sub-layers have been checked already.
    """

    def __init__(self, upstream=None, seed=0, dtype="float64", randomize=True, contracts=True, skip=(), causal=False,
                 padding=None, independent_rows=False, directions=2, points=2, explain=True, only=None, parts_pass=False):
        self.upstream, self.seed, self.dtype, self.randomize = upstream, seed, dtype, randomize
        self.contracts, self.skip, self.causal, self.padding = contracts, skip, causal, padding
        self.independent_rows, self.directions, self.explain = independent_rows, directions, explain
        self.points, self.only, self.parts_pass = points, only, parts_pass
        self.call = {"parameters": None, "replay": False, "reseed": None}

    def run(self, subject, inputs, keywords):
        """Run the whole check; return its report."""
        began = time.perf_counter()
        self.rng = np.random.default_rng(self.seed)
        self.trial = Trial(subject, inputs, keywords, parameters=self.call["parameters"], dtype=self.dtype)
        self.report = Report(self.trial.subject.name, self.seed)
        with Replay(subject, self.call["replay"], self.call["reseed"]) as replayed, self.trial:
            self.trial.reseed = replayed.before_forward
            try:
                self._compare()
            except Stop as stop:
                self.report.status, self.report.message = stop.status, stop.message
            if self.explain and self.report.status in ("FAIL", "SHAPE") and self.report.arrays:
                detail(self)
        if self.explain and self.report.status == "FAIL" and not self.parts_pass:
            reproduce(self, subject, inputs, keywords)
        self.report.forwards, self.report.seconds = self.trial.forwards, time.perf_counter() - began
        return self.report

    def _compare(self):
        self.first_run()
        self.reference_run()
        self.differences = Differences(self.trial, self.reference.dys, self.reference.outputs, self.rng)
        self.differences.measure_noise()
        self.report.epsilon = self.differences.epsilon
        self._say_how_exact()
        self.judge_arrays()
        self.look_for_vacuity()
        if self.contracts:
            self.check_contracts()
        self.conclude()

    # ---- the first runs

    def attempt(self, what, function, *args):
        """Call the subject; an exception of its own becomes the outcome ERROR, with the place it came from."""
        try:
            return function(*args)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
            raise Stop("ERROR", f"{what} raised {type(error).__name__}: {error}{place}") from error

    def first_run(self):
        """Run forward twice and backward once: does it run, is it repeatable, does it leave other arrays alone?"""
        trial = self.trial
        before = [x.copy() for x in trial.inputs]
        held = [(slot, slot.get().copy()) for slot in trial.slots]
        outputs = self.attempt("forward", trial.forward)
        if not any(differentiable(y) for y in outputs):
            raise Stop("ERROR", "forward returned no float array" + ("" if outputs else " at all"))
        first = [y.copy() for y in outputs]
        self._look_for_mutation("forward", before, held)
        again = self.attempt("forward", trial.forward)
        self._compare_runs(first, again)
        dys = self.upstream_for(again)
        copies = [dy.copy() for dy in dys]
        kept = [y.copy() for y in again]
        self.attempt("backward", trial.backward, dys)
        self._look_for_mutation("backward", before, held)
        self._look_for_mutated("dy, the upstream gradient,", "backward", dys, copies)
        self._look_for_mutated("the output of forward", "backward", again, kept)
        self.dys = copies
        self.attempt("forward", trial.find_arrays)
        if self.only is not None:
            trial.arrays = [w for w in trial.arrays if w.name == self.only]
        if not trial.arrays:
            raise Stop("VACUOUS", self._nothing_to_differentiate())

    def _nothing_to_differentiate(self):
        ints = [f"{n} is {x.dtype.name}" for n, x in zip(self.trial.names, self.trial.inputs, strict=True)]
        return ("there is nothing to differentiate: no float input" + (f" ({', '.join(ints)})" if ints else "")
                + " and no parameter with a gradient")

    def _compare_runs(self, first, again):
        if len(first) != len(again) or any(a.shape != b.shape for a, b in zip(first, again, strict=True)):
            raise Stop("NONDETERMINISTIC", "two forwards with the same inputs give outputs of different shapes")
        for a, b in zip(first, again, strict=True):
            if not differentiable(a) or bool(((a == b) | ((a != a) & (b != b))).all()):
                continue
            if not same(a, b, 2.2e-16):
                raise Stop("NONDETERMINISTIC", "two forwards with the same inputs differ: dropout or another random number. "
                                               + self._replay_offer())

    def _replay_offer(self):
        how = "gradcheck(..., replay=True) keeps the masks of the first forward"
        return how + ("" if callable(getattr(self.trial.layer, "replay_dropout", None))
                      else " if the layer holds its random generator or uses np.random; else give reseed=function")

    def _look_for_mutation(self, who, before, held):
        self._look_for_mutated(None, who, self.trial.inputs, before)
        for slot, values in held:
            if not _identical(slot.get(), values):
                slot.get()[...] = values
                raise Stop("MUTATED", f"{who} changes the parameter {slot.name}; only an optimizer may")

    def _look_for_mutated(self, what, who, arrays, copies):
        for i, (array, copy) in enumerate(zip(arrays, copies, strict=True)):
            if not _identical(array, copy):
                name = what or f"its input {self.trial.names[i]}"
                raise Stop("MUTATED", f"{who} changes {name} in place: work on a copy")

    def upstream_for(self, outputs):
        """The upstream gradients: the user's, checked, or random ones."""
        if self.upstream is None:
            return self.trial.draw_upstream(outputs, self.rng)
        given = [g for _, g in leaves(self.upstream)] or [np.asarray(self.upstream)]
        if len(given) != len(outputs) or any(g.shape != y.shape for g, y in zip(given, outputs, strict=True)):
            raise ValueError(f"upstream: got shapes {[g.shape for g in given]}, expected {[y.shape for y in outputs]}")
        return [g.astype(y.dtype) for g, y in zip(given, outputs, strict=True)]

    def reference_run(self):
        """Leave special parameters, then run forward and backward once: what everything is compared with."""
        trial = self.trial
        self.redrawn = randomize(trial, self.rng) if self.randomize else []
        outputs, gradients, returned = self.attempt("backward", trial.gradients, self.dys)
        self.problems = list(trial.problems)
        self.reference = Reference(outputs, self.dys, gradients, returned)
        bad = [n for n, g in gradients.items() if g is not None and differentiable(g) and not _finite(g)]
        if not all(_finite(y) for y in outputs if differentiable(y)):
            raise Stop("NONFINITE", "the output holds NaN or infinity" + self._where_nonfinite())
        if bad:
            raise Stop("NONFINITE", f"the gradient of {', '.join(bad)} holds NaN or infinity" + self._where_nonfinite())

    def _where_nonfinite(self):
        if not (self.trial.layer is not None and sublayers(self.trial.layer)):
            return ""
        started, finished = record(self.trial.layer, lambda: self.trial.gradients(self.dys))
        found = first_nonfinite(started, finished)
        return f"; it first appears in the {found[2]} of {found[0]} ({found[1]})" if found else ""

    def _say_how_exact(self):
        if self.differences.vanished:
            self.report.notes.append("small steps vanished in rounding, so larger ones were taken")
        if self.differences.epsilon > SINGLE:
            floor = self.differences.epsilon ** 0.8
            self.report.notes.append(f"something here computes with a relative rounding error of {self.differences.epsilon:.0e} "
                                     f"(float32 or less): cannot decide below a relative error of about {floor:.0e}")

    # ---- the arrays, one by one

    def judge_arrays(self):
        """Judge the gradient of every array by itself, along a few random directions."""
        for problem, words in self.problems:
            if problem == "count":
                raise Stop("SHAPE", words)
        self.complex_works = True
        for w in self.trial.arrays:
            self.report.arrays.append(self.judge_array(w))
        self.hear_taylor()
        for _ in range(self.points - 1):
            if {a.status for a in self.report.arrays} <= {"PASS", "KINK"} and self.look_again():
                return

    def judge_array(self, w):
        """Return the `ArrayReport` of one array."""
        shape = tuple(self.trial.value(w).shape)
        gradient = self.reference.gradients[w.name]
        if gradient is None or not differentiable(gradient) or tuple(gradient.shape) != shape:
            return self._judge_misfit(w, gradient, shape)
        out = ArrayReport(w.name, w.kind, shape)
        if not gradient.size:
            out.note = "empty"
            return out
        coarse = epsilon_of(gradient.dtype)
        self.differences.analytic_epsilon = coarse if coarse > epsilon_of(self.trial.dtype) else 0.0
        if self.differences.analytic_epsilon and coarse > self.differences.epsilon:
            self.report.warnings.append(f"the gradient of {w.name} is {gradient.dtype.name}, less exact than the rest")
        gradient = gradient.astype(self.trial.dtype, copy=False)
        judged = []
        for _ in range(self.directions):
            direction = self.differences.direction(w)
            judged.append(self.differences.judge(w, direction, gradient))
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
            self._look_past_kinks(w, gradient, out)
        if verdicts == {OK}:
            self._hear_witness(w, gradient, direction, out)
        return out

    def look_again(self):
        """Judge every array at another point; stay there and return True if something is wrong, else go back."""
        trial, reference, differences = self.trial, self.reference, self.differences
        base = {w: trial.value(w).copy() for w in trial.arrays}
        parameters = [w for w in trial.arrays if w.slot is not None]
        run = self._run_at(trial.arrays, base) or (self._run_at(parameters, base) if parameters else None)
        if run is not None:
            self.reference = run
            self.differences = Differences(trial, self.dys, run.outputs, self.rng, differences.epsilon)
            for array, w in zip(self.report.arrays, trial.arrays, strict=True):
                gradient = run.gradients[w.name]
                if gradient is None or not gradient.size or gradient.shape != array.shape:
                    continue
                judged = self.differences.judge(w, self.differences.direction(w), gradient.astype(trial.dtype, copy=False))
                if judged.verdict == WRONG:
                    array.status, array.note = "FAIL", "right at the first point, wrong at a second one"
                    array.slopes, array.steps = [(judged.best.analytic, judged.best.value, judged.best.bar)], judged.steps
            if any(a.status == "FAIL" for a in self.report.arrays):
                return True
        self._go_back(base)
        self.reference, self.differences = reference, differences
        return False

    def _run_at(self, moved, base):
        """Move some arrays and run; None (and back again) where the subject does not take that point."""
        trial = self.trial
        for w in moved:
            trial.place(w, base[w] + MOVE * self.differences.direction(w))
        try:
            outputs, gradients, returned = trial.gradients(self.dys)
        except (ValueError, IndexError, TypeError, RuntimeError, FloatingPointError):
            outputs = []
        same_shapes = [y.shape for y in outputs] == [y.shape for y in self.reference.outputs]
        if same_shapes and all(_finite(y) for y in outputs if differentiable(y)):
            return Reference(outputs, self.dys, gradients, returned)
        self._go_back(base)
        return None

    def _go_back(self, base):
        for w, x in base.items():
            self.trial.place(w, x)

    def _judge_misfit(self, w, gradient, shape):
        """A gradient that is missing or has the wrong shape; None is right for an array that does not matter."""
        out = ArrayReport(w.name, w.kind, shape)
        judged = self.differences.judge(w, self.differences.direction(w), array_module(self.trial.value(w)).zeros(shape))
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

    def _look_past_kinks(self, w, gradient, out):
        """Find the entries at a kink, leave them out, and judge the others."""
        from .locate import locate, numeric_gradient, wrong_entries

        if self.differences.epsilon > SINGLE:
            out.status = "KINK"
            out.note = "the steps that this precision needs cross a kink, so nothing can be decided: check in float64"
            return
        keep = np.ones(out.shape)
        if keep.size <= FEW_ENTRIES:
            numeric, bar, verdicts = numeric_gradient(self.differences, w, gradient)
            out.entries, out.n_wrong = wrong_entries(gradient, numeric, bar, verdicts)
            keep[verdicts != OK] = 0
        else:
            out.entries, _ = locate(self.differences, w, gradient)
            out.n_wrong = sum(e.verdict == WRONG for e in out.entries)
            for e in out.entries:
                keep[e.index] = 0
        xp = array_module(gradient)
        mask = xp.asarray(keep, self.trial.dtype)
        rest = self.differences.judge(w, self.differences.direction(w, mask), gradient) if keep.any() else None
        if out.n_wrong or (rest is not None and rest.verdict == WRONG):
            out.status = "FAIL"
            return
        if not out.entries and (rest is None or rest.verdict == OK):
            return
        out.status = "KINK"
        places = ", ".join(str(list(e.index)) for e in out.entries[:4])
        out.note = (f"no derivative at {places}" + (" and more" if len(out.entries) > 4 else "") if places
                    else "the differences do not settle as the step shrinks")

    def _hear_witness(self, w, gradient, direction, out):
        """The complex step, where forward lets it through; after one refusal it is not asked again."""
        if not self.complex_works or self.trial.dtype != np.float64:
            return
        value = complex_step(self.trial, self.reference.dys, w, direction)
        if value is None:
            self.complex_works = False
            return
        _, n, bar = out.slopes[-1]
        slope = float((gradient * direction).sum())
        if abs(value - slope) > 10 * bar + 1e-9 * abs(slope):
            self.report.notes.append(f"the complex step disagrees for {w.name}: it gives {value:.6g}, differences {n:.6g}; "
                                     "forward probably uses abs, var or another function that drops the imaginary part, "
                                     "so this witness does not count")
        else:
            out.complex_slope = (value, slope)

    def hear_taylor(self):
        """The Taylor rate, along one direction through every array at once."""
        usable = [w for w, a in zip(self.trial.arrays, self.report.arrays, strict=True) if a.slopes]
        if usable:
            self.report.taylor = taylor(self.trial, self.reference, {w: self.differences.direction(w) for w in usable})

    # ---- what was not tested

    def look_for_vacuity(self):
        """Turn a pass that tested nothing into VACUOUS, and say what else was weak."""
        report, trial = self.report, self.trial
        reports = dict(zip([w.name for w in trial.arrays], report.arrays, strict=True))
        passed = [w for w in trial.arrays if reports[w.name].status == "PASS" and self.reference.gradients[w.name] is not None
                  and trial.value(w).size]
        untested = [w for w in passed if not reports[w.name].tested]
        for w in untested:
            reason = why_untested(trial, w, self.rng)
            if reason:
                self._vacuous(reports[w.name], f"its gradient is zero here because {reason}, so nothing was tested")
            else:
                reports[w.name].note = "the output does not depend on it, and its gradient is zero"
        for w in passed:
            if w not in untested and reports[w.name].flat and self.upstream is not None:
                self._vacuous(reports[w.name], "this upstream gradient makes the true gradient zero: nothing was tested; "
                                               "leave `upstream` out and a random one is drawn")
        if report.arrays and all(not a.tested for a in report.arrays if a.status != "FAIL") and not any(
                a.status in ("FAIL", "SHAPE", "KINK") for a in report.arrays):
            for a in report.arrays:
                self._vacuous(a, a.note or "the output depends on nothing here")
        for w, word, is_parameter in special_points(trial):
            if is_parameter and word == "all ones" and reports[w.name].status == "PASS":
                self._vacuous(reports[w.name], "it is all ones, where a backward that forgets it cannot be told from a right "
                                               "one: give it random values, or leave randomize=True")
            else:
                report.warnings.append(f"{w.name} is {word}, which hides mistakes")
        if self.upstream is not None and all(bool((dy == dy.ravel()[:1]).all()) for dy in self.reference.dys):
            report.warnings.append("the upstream gradient is one number everywhere, which hides mistakes: leave it out")
        report.warnings += weaknesses(trial)
        if self.redrawn:
            report.notes.append(f"drawn afresh for the check, since constants hide mistakes: {some(self.redrawn)}")

    @staticmethod
    def _vacuous(array, note):
        array.status, array.note = "VACUOUS", note

    # ---- contracts and the end

    def check_contracts(self):
        """Check the contracts, those asked for by name included."""
        trial, reference, report = self.trial, self.reference, self.report
        epsilon = self.differences.epsilon
        trial.problems = self.problems
        if any(a.status == "SHAPE" for a in report.arrays):
            return
        report.findings, report.contracts = check_contracts(trial, reference, epsilon, self.skip)
        if self.independent_rows:
            report.findings += rows(trial, reference, epsilon, required=True)
            report.contracts.append("independent rows")
        if self.causal:
            names = None if self.causal is True else ((self.causal,) if isinstance(self.causal, str) else self.causal)
            report.findings += causality(trial, reference, epsilon, names)
            report.contracts.append("causality")
        if self.padding is not None:
            report.findings += padding(trial, reference, epsilon, self.padding)
            report.contracts.append("padding")
        if any(kind == "short" for kind, _ in self.problems) and not trial.subject.is_scalar:
            report.notes.append("backward leaves out the inputs that have no gradient; the contract is one gradient for each "
                                "input, None for ids and masks")

    def conclude(self):
        """Settle the one outcome and the words for it."""
        report = self.report
        report.status = outcome([a.status for a in report.arrays] + [f.status for f in report.findings])
        wrong = [a.name for a in report.arrays if a.status == report.status]
        if report.status == "FAIL" and wrong:
            report.message = f"the gradient of {some(wrong)} is wrong"
        elif report.status == "FAIL":
            report.message = "the gradients are right, but not the manners: " + ", ".join(
                dict.fromkeys(f.contract for f in report.findings))
        elif report.status in ("VACUOUS", "KINK", "SHAPE") and wrong:
            report.message = f"{some(wrong)}: " + next(a.note for a in report.arrays if a.status == report.status)
        elif report.status == "PASS":
            report.message = f"the gradients of {len(report.arrays)} arrays are right"


def _identical(a, b):
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def _finite(x):
    return bool(array_module(x).isfinite(x).all())
