"""Two gradients side by side: when they are equal, and how to say where they differ."""

from dataclasses import dataclass

import numpy as np

from ..evidence import Evidence
from ..report import told_apart

SMALL = 1e-3  # as large as what an eps of 1e-3 or a constant of three digits does
FLOAT32 = 1e-6  # some roundings of 6e-8 each


@dataclass
class Clue:
    """What one rule found: a kind, whether the numbers fit it exactly, and the words for it.

    proof: whether an exact fit is the mistake itself. That a gradient has the opposite sign says all there is to say;
    that it equals another array's gradient is a fact whose cause may be another.
    """

    kind: str
    exact: bool
    text: str
    line: str = ""
    proof: bool = False


class Comparison:
    """The analytic gradient `a` beside the right one `n`, with the tolerance within which numbers are the same.

    The tolerance is the error bar of `n`, and never less than 1e-9 of the largest entry: formulas that mean the same
    round differently.
    """

    def __init__(self, evidence: Evidence):
        self.e = evidence
        self.a, self.n = evidence.analytic, evidence.numeric
        self.scale = float(np.abs(self.n).max()) if self.n.size else 0.0
        self.bar = float(np.max(evidence.error_bar)) if evidence.error_bar.size else 0.0
        self.tol = max(2 * self.bar, 1e-9 * max(self.scale, 1e-12))
        self.same_shape = self.a.shape == self.n.shape

    def equal(self, x, y, factor=1.0):
        """Same shape, and the same numbers within the tolerance times factor."""
        x, y = np.asarray(x), np.asarray(y)
        if x.shape != y.shape or x.size == 0:
            return False
        size = max(self.scale, float(np.abs(y).max()))
        return bool(np.abs(x - y).max() <= factor * max(2 * self.bar, 1e-9 * size))

    @property
    def vanishing(self):
        """True where the right gradient is zero: nothing can be read from ratios then."""
        return self.scale <= 10 * self.tol

    @property
    def wrong(self):
        """The entries that differ."""
        return np.abs(self.a - self.n) > 2 * self.tol

    @property
    def rich(self):
        """Whether the data can tell mistakes apart: enough entries, no axis of length one, a small error bar."""
        if self.n.size < 6 or self.vanishing or self.bar > 1e-4 * self.scale:
            return False
        dy = self.e.dy
        if any(self.equal(dy, value) for value in self.e.inputs.values()):
            return False  # an upstream equal to an input makes different formulas agree
        if dy is not None and np.size(dy) > 1:
            return min(np.shape(dy)) > 1 and bool(np.ptp(dy) > 0)
        return True

    @property
    def small_error(self):
        """What makes an error of less than a thousandth: where to look, no more; "" where the error is larger."""
        off = float(np.abs(self.a - self.n).max()) / self.scale if self.same_shape and not self.vanishing else 1.0
        if off > SMALL:
            return ""
        line = f"it is off by only {off:.0e} of the largest entry: "
        if off < FLOAT32:
            return line + "float32 leaves as much; is something computed or stored in it?"
        return line + "an eps that stands elsewhere in backward than in forward, or a constant with too few digits"

    def where(self):
        """Which entries are wrong, in words, with the worst of them."""
        name, kind = self.e.name, self.e.kind
        if not self.same_shape:
            return f"the gradient of the {kind} {name} has shape {self.a.shape}, and {name} has shape {self.n.shape}"
        wrong = self.wrong
        worst = np.unravel_index(np.argmax(np.abs(self.a - self.n)), self.n.shape)
        index = ", ".join(str(int(i)) for i in worst)
        which = "all" if wrong.all() else f"{int(wrong.sum())} of {wrong.size}"
        yours, right = told_apart(self.a[worst], self.n[worst], 6)
        return (
            f"the gradient of the {kind} {name}: {which} entries are wrong, the worst is {name}[{index}]: "
            f"yours {yours}, right {right}"
        )


def axis_subsets(ndim):
    """Every non-empty set of axes, small sets first."""
    sets = [[axis for axis in range(ndim) if bits >> axis & 1] for bits in range(1, 2**ndim)]
    return [tuple(s) for s in sorted(sets, key=len)]
