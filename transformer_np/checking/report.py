"""What a check has to say: the outcome, array by array, in text, JSON, HTML and pictures."""

import html
import json
from dataclasses import dataclass, field

import numpy as np

OUTCOMES = ("PASS", "FAIL", "KINK", "NONDETERMINISTIC", "VACUOUS", "NONFINITE", "SHAPE", "MUTATED", "ERROR")
# Where several apply, the first of these is the outcome.
PRECEDENCE = ("ERROR", "NONDETERMINISTIC", "NONFINITE", "SHAPE", "MUTATED", "FAIL", "VACUOUS", "KINK", "PASS")
MEANING = {
    "PASS": "the gradients are right",
    "FAIL": "the backward is wrong",
    "KINK": "right wherever there is a derivative; at a kink or a tie there is none",
    "NONDETERMINISTIC": "two forwards with the same inputs differ, so nothing can be compared",
    "VACUOUS": "something was not tested, so this is no pass",
    "NONFINITE": "NaN or infinity",
    "SHAPE": "a gradient has the wrong shape or is in the wrong place",
    "MUTATED": "forward or backward changed an array that is not its own",
    "ERROR": "forward or backward raised an error",
}


@dataclass
class ArrayReport:
    """The verdict on the gradient of one array.

    `analytic`, `numeric` and `bar` are whole gradients where they were computed, else None; `slopes` holds
    (analytic, numeric, error bar) of each directional probe.
    """

    name: str
    kind: str
    shape: tuple
    status: str = "PASS"
    note: str = ""
    slopes: list = field(default_factory=list)
    entries: list = field(default_factory=list)
    n_wrong: int | None = None
    analytic: np.ndarray | None = None
    numeric: np.ndarray | None = None
    bar: np.ndarray | None = None
    tested: bool = False
    flat: bool = False
    steps: list = field(default_factory=list)
    taylor: object = None
    complex_slope: tuple | None = None
    diagnoses: list = field(default_factory=list)

    @property
    def error(self):
        """The largest difference between analytic and numeric slope, relative to the slope."""
        return max((abs(a - n) / max(abs(a), abs(n), 1e-300) for a, n, _ in self.slopes), default=0.0)

    @property
    def resolution(self):
        """The smallest relative error that this check could have seen: the error bar over the largest slope."""
        size = max((max(abs(a), abs(n)) for a, n, _ in self.slopes), default=0.0)
        return max((bar for _, _, bar in self.slopes), default=0.0) / (size or 1.0)

    def lines(self):
        """The verdict in words."""
        out = [f"  {self.status:<8} {self.name} {self.shape}" + (f": {self.note}" if self.note else "")]
        if self.status in ("PASS", "VACUOUS"):
            return out
        for entry in self.entries[:4]:
            at = f"{self.name}[{', '.join(map(str, entry.index))}]" if entry.index else self.name
            analytic, numeric = told_apart(entry.analytic, entry.numeric, 7)
            out.append(
                f"           {at}: backward gives {analytic}, "
                + (
                    f"differences give {numeric} ± {entry.bar:.1g}"
                    if entry.verdict != "kink"
                    else f"at a kink (differences {numeric})"
                )
            )
        if not self.entries and self.slopes and self.status == "FAIL":
            a, n, bar = self.slopes[0]
            a, n = told_apart(a, n, 7)
            out.append(f"           along a random direction backward gives {a}, differences give {n} ± {bar:.1g}")
        if self.n_wrong:
            size = int(np.prod(self.shape))
            out.append(f"           {self.n_wrong} of {size} entries are wrong")
        return out

    def to_dict(self):
        """The same as plain values."""
        return {
            "name": self.name,
            "kind": self.kind,
            "shape": list(self.shape),
            "status": self.status,
            "note": self.note,
            "slopes": [list(s) for s in self.slopes],
            "entries": [e.to_dict() for e in self.entries],
            "n_wrong": self.n_wrong,
            "taylor_rate": self.taylor.rate if self.taylor else None,
            "complex_step": None if self.complex_slope is None else list(self.complex_slope),
            "diagnoses": [d.to_dict() for d in self.diagnoses],
        }


@dataclass
class Report:
    """The answer of `gradcheck`. `ok` is True for PASS alone; `status` is one of `OUTCOMES`."""

    subject: str
    seed: int
    status: str = "PASS"
    message: str = ""
    arrays: list = field(default_factory=list)
    findings: list = field(default_factory=list)
    contracts: list = field(default_factory=list)
    warnings: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    taylor: object = None
    culprit: str = ""
    culprit_report: object = None
    smallest: dict = field(default_factory=dict)
    snippet: str = ""
    forwards: int = 0
    seconds: float = 0.0
    epsilon: float = 2.2e-16

    @property
    def ok(self):
        """Whether everything was tested and everything is right."""
        return self.status == "PASS"

    def __bool__(self):
        return self.ok

    @property
    def diagnoses(self):
        """What is probably wrong, for the array or sub-layer at fault, best guess first."""
        return [d for a in self._at_fault().arrays for d in a.diagnoses]

    def _at_fault(self):
        """The report of the sub-layer at fault, where one was found; else this one."""
        return self if self.culprit_report is None else self.culprit_report

    def array(self, name):
        """Return the `ArrayReport` of one array; KeyError names those there are."""
        for a in self.arrays:
            if a.name == name:
                return a
        raise KeyError(f"no array named {name!r}, there are {', '.join(a.name for a in self.arrays)}")

    def hint(self, level=1):
        """Climb the ladder: 1 where it is wrong, 2 what the error looks like, 3 which line, 4 how to fix it."""
        if self.ok:
            return "Nothing to fix: everything passed."
        if not self.diagnoses:
            return self.headline() if level == 1 else str(self)
        first = self.diagnoses[0]
        rungs = [first.where, first.shape_of_error, first.line, first.fix][:level]
        words = "\n".join(r for r in rungs if r)
        return words if first.certainty == "certain" else f"({first.certainty}) {words}"

    def headline(self):
        """One line: who, what, how many."""
        tail = self.message or MEANING[self.status]
        return f"{self.status}  {self.subject}: {tail}"

    def __str__(self):
        out = [self.headline()]
        out += self._array_lines()
        for finding in self.findings:
            out.append(f"  {finding.status:<8} contract {finding.contract}: {finding.message}")
        out += self._witness_lines()
        for diagnosis in self.diagnoses[:3]:
            out += ["  " + line for line in diagnosis.text().splitlines()]
        out += [f"  warning: {w}" for w in self.warnings]
        out += [f"  note: {n}" for n in self.notes]
        if self.smallest:
            out.append("  smallest that still fails: " + ", ".join(f"{n} {tuple(s)}" for n, s in self.smallest.items()))
        if self.snippet and not self.ok:
            out += ["  to see it again:"] + ["    " + line for line in self.snippet.splitlines()]
        out.append(
            f"  seed {self.seed}, {self.forwards} forwards, {self.seconds:.2f} s"
            + (f", {len(self.contracts)} contracts" if self.contracts else "")
        )
        return "\n".join(out)

    def _array_lines(self):
        """Every array where there are few, else only those that do not pass; of a model with a culprit only that."""
        passed = sum(a.status == "PASS" for a in self.arrays)
        short = self.culprit_report is not None or len(self.arrays) > 24
        out = [f"  {passed} of {len(self.arrays)} arrays pass"] if short else []
        if self.culprit_report is None:
            out += [line for a in self.arrays if a.status != "PASS" or not short for line in a.lines()]
        if self.culprit:
            out.append(f"  first wrong layer: {self.culprit}")
        if self.culprit_report is not None:
            out += ["  " + line for a in self.culprit_report.arrays if a.status != "PASS" for line in a.lines()]
            out += [f"    contract {f.contract}: {f.message}" for f in self.culprit_report.findings]
        return out

    def _witness_lines(self):
        """What the three witnesses say, in one line."""
        words = []
        seen = [a.resolution for a in self.arrays if a.status == "PASS" and a.tested]
        if seen:
            words.append(f"differences see relative errors above {max(seen):.0e}")
        if self.taylor is not None and self.taylor.rate is not None:
            scale = "2 is right, 1 is wrong"
            if self.status == "FAIL" and self.taylor.rate > 1.5:
                scale += "; it is too coarse to see so small an error"
            words.append(f"Taylor rate {self.taylor.rate:.2f} ({scale})")
        agree = [
            abs(a.complex_slope[0] - a.complex_slope[1]) / max(abs(a.complex_slope[0]), 1e-300)
            for a in self.arrays
            if a.complex_slope and a.tested
        ]
        if agree:
            words.append(f"complex step within {max(agree):.0e}")
        return ["  witnesses: " + "; ".join(words)] if words else []

    def to_dict(self):
        """Everything as plain values."""
        return {
            "subject": self.subject,
            "status": self.status,
            "ok": self.ok,
            "message": self.message,
            "seed": self.seed,
            "arrays": [a.to_dict() for a in self.arrays],
            "findings": [f.to_dict() for f in self.findings],
            "contracts": list(self.contracts),
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "taylor_rate": self.taylor.rate if self.taylor else None,
            "culprit": self.culprit,
            "culprit_report": None if self.culprit_report is None else self.culprit_report.to_dict(),
            "smallest": {n: list(s) for n, s in self.smallest.items()},
            "snippet": self.snippet,
            "forwards": self.forwards,
            "seconds": self.seconds,
        }

    def to_json(self, indent=2):
        """The report as JSON; numbers that are no numbers become null."""
        return json.dumps(_plain(self.to_dict()), indent=indent)

    def _repr_html_(self):
        colour = {"PASS": "#1a7f37", "KINK": "#9a6700", "VACUOUS": "#9a6700"}.get(self.status, "#cf222e")
        head, *rest = str(self).splitlines()
        picture = self._picture_html() if self.status == "FAIL" else ""
        return (
            f'<div><b style="color:{colour}">{html.escape(head)}</b>'
            f'<pre style="margin:0.3em 0">{html.escape(chr(10).join(rest))}</pre>{picture}</div>'
        )

    def _picture_html(self):
        """The picture of the first wrong array as an inline PNG, or nothing where there is none to draw."""
        import base64
        import io

        if not any(a.numeric is not None for a in self._at_fault().arrays):
            return ""
        buffer = io.BytesIO()
        figure = self.plot()
        figure.savefig(buffer, format="png", dpi=90, bbox_inches="tight")
        data = base64.b64encode(buffer.getvalue()).decode()
        return f'<img src="data:image/png;base64,{data}" alt="analytic and numeric">'

    def plot(self, name=None):
        """Draw one array: analytic, numeric, difference, error against h, Taylor slope. Returns a matplotlib Figure.

        Without a name the first wrong one, of the sub-layer at fault where one was found.
        """
        from .pictures import draw

        at_fault = self._at_fault()
        return draw(at_fault if name is None and at_fault.arrays else self, name)


def _plain(value):
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def told_apart(a, b, digits):
    """Two numbers as text, with so many digits, or as many as show that they differ."""
    while digits < 17 and f"{a:.{digits}g}" == f"{b:.{digits}g}" and a != b:
        digits += 1
    return f"{a:.{digits}g}", f"{b:.{digits}g}"


def outcome(statuses):
    """The one status that stands for several."""
    return min(statuses, key=PRECEDENCE.index, default="PASS")
