"""`gradcheck`: the flow of a check, from the first run to the verdict."""

import time

import numpy as np

from .contracts import CONTRACTS, check_contracts, gradient_aliasing
from .detail import detail
from .differences import Differences
from .first_run import Stop, first_run, reference_run
from .judging import SINGLE, judge_arrays
from .replay import Replay
from .report import Report, outcome
from .sequences import causality, padding, rows
from .shrink import reproduce
from .trial import Trial
from .vacuity import look_for_vacuity, some


def gradcheck(
    subject,
    *inputs,
    upstream=None,
    parameters=None,
    seed=0,
    dtype="float64",
    randomize=True,
    replay=False,
    reseed=None,
    contracts=True,
    skip=(),
    causal=False,
    padding=None,
    independent_rows=False,
    directions=2,
    points=2,
    explain=True,
    keywords=None,
    **forward_keywords,
):
    """Check a backward against finite differences of its forward, and both against their contracts.

    subject: an object with forward and backward (a layer, a model, a loss: `backward()` may take no upstream
    gradient), a pair of functions `(forward, backward)` in the manner `out, cache = forward(x, w)`, `dx, dw =
    backward(dout, cache)`, or one function that returns `(loss, dx)`. inputs: what forward takes; float arrays are
    differentiated, integer and boolean ones (ids, masks) are not and must get None. Further keywords go to forward
    (or in the dictionary `keywords` where a name is taken here). Everything is put back bit for bit afterwards.

    upstream: the gradient of the output, or a list of them; drawn at random by default, which is far better than ones.
    parameters: {attribute: gradient attribute} where the search in `checking.parameters` does not find them.
    seed: of every random choice here. dtype: that of the check; float64 unless the point is to check float32.
    randomize: draw parameters that are all ones or all zeros (gamma, beta, biases) afresh during the check, because at
    these values many mistakes cannot be seen. replay: freeze randomness such as dropout masks: by the layer's
    `replay_dropout` where it has one, else by rewinding every random generator it holds before each forward. reseed: a
    function to call before each forward instead.
    contracts: also check what forward and backward promise besides numbers; `skip` names contracts to leave out.
    causal: True, or the names of the inputs in time order: outputs must not depend on later inputs.
    padding: boolean (B, S), True at real positions: the others must not matter. independent_rows: rows of the batch
    must not meet. directions: random directions an array. points: with 2, a second look with everything moved by a
    third, since at one point dead units and lucky values hide mistakes. explain: on failure find the entries, the
    layer and the cause.

    Returns a `Report`: `.ok`, `.status` (PASS, FAIL, KINK, NONDETERMINISTIC, VACUOUS, NONFINITE, SHAPE, MUTATED,
    ERROR), `print(report)`, `.hint(level)`, `.plot()`, `.to_json()`. Raises TypeError where the subject is none of
    the above, ValueError for an upstream gradient that does not fit or a parameter that is not there.
    """
    check = Check(
        upstream=upstream,
        seed=seed,
        dtype=dtype,
        randomize=randomize,
        contracts=contracts,
        skip=tuple(skip),
        causal=causal,
        padding=padding,
        independent_rows=independent_rows,
        directions=directions,
        points=points,
        explain=explain,
    )
    check.call = {"parameters": parameters, "replay": replay, "reseed": reseed}
    return check.run(subject, inputs, {**forward_keywords, **(keywords or {})})


class Check:
    """One check under way: its options, its trial, and the report that grows.

    Beyond the options of `gradcheck`: `only` limits the comparison to one array, by name; `parts_pass` says that the
    sub-layers have been checked already.
    """

    def __init__(
        self,
        upstream=None,
        seed=0,
        dtype="float64",
        randomize=True,
        contracts=True,
        skip=(),
        causal=False,
        padding=None,
        independent_rows=False,
        directions=2,
        points=2,
        explain=True,
        only=None,
        parts_pass=False,
    ):
        self.upstream, self.seed, self.dtype, self.randomize = upstream, seed, dtype, randomize
        self.contracts, self.skip, self.causal, self.padding = contracts, skip, causal, padding
        self.independent_rows, self.directions, self.explain = independent_rows, directions, explain
        self.points, self.only, self.parts_pass = points, only, parts_pass
        self.call = {"parameters": None, "replay": False, "reseed": None}

    def run(self, subject, inputs, keywords):
        """Run the whole check; return its report."""
        began = time.perf_counter()
        self.rng = np.random.default_rng([self.seed, 0x6772])  # a stream that nobody else draws inputs from
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
        first_run(self)
        reference_run(self)
        self.differences = Differences(self.trial, self.reference.dys, self.reference.outputs, self.rng)
        self.differences.allow_residue(self.reference.gradients)
        self.differences.measure_noise()
        self.report.epsilon = self.differences.epsilon
        self._say_how_exact()
        judge_arrays(self)
        look_for_vacuity(self)
        if self.contracts:
            self.check_contracts()
        self.conclude()

    def _say_how_exact(self):
        if self.differences.vanished:
            self.report.notes.append("small steps vanished in rounding, so larger ones were taken")
        if self.differences.epsilon > SINGLE:
            self.report.notes.append(
                f"something here computes with a relative rounding error of {self.differences.epsilon:.0e} "
                "(float32 or less): smaller mistakes than the witnesses tell stay unseen; float64 sees them"
            )

    def check_contracts(self):
        """Check the contracts, those asked for by name included."""
        trial, reference, report = self.trial, self.reference, self.report
        epsilon = self.differences.epsilon
        trial.problems = self.problems
        if any(a.status == "SHAPE" for a in report.arrays):
            return
        report.findings, report.contracts = check_contracts((*CONTRACTS, rows), trial, reference, epsilon, self.skip)
        report.warnings += gradient_aliasing(reference)
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
            report.notes.append(
                "backward leaves out the inputs that have no gradient; the contract is one gradient for each "
                "input, None for ids and masks"
            )

    def conclude(self):
        """Settle the one outcome and the words for it."""
        report = self.report
        report.status = outcome([a.status for a in report.arrays] + [f.status for f in report.findings])
        wrong = [a.name for a in report.arrays if a.status == report.status]
        if report.status == "FAIL" and wrong:
            whose = f"gradient of {wrong[0]} is" if len(wrong) == 1 else f"gradients of {some(wrong)} are"
            report.message = f"the {whose} wrong"
        elif report.status == "FAIL":
            report.message = "the gradients are right, but not the manners: " + ", ".join(
                dict.fromkeys(f.contract for f in report.findings)
            )
        elif report.status in ("VACUOUS", "KINK", "SHAPE") and wrong:
            report.message = f"{some(wrong)}: " + next(a.note for a in report.arrays if a.status == report.status)
        elif report.status == "PASS":
            n = len(report.arrays)
            report.message = "the gradient of 1 array is right" if n == 1 else f"the gradients of {n} arrays are right"
