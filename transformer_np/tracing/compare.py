"""Two traces side by side: the first step at which they differ, and by how much."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Comparison:
    """What `trace.compare(other)` returns; it is true where nothing differs.

    name: the first step, in the order of the first trace, whose value, shape or type differs, or that the other trace
    lacks; None where all agree. why: what differs, in words. index: where the difference is largest, in the step's
    array. mine, theirs: the numbers there. n_differing: in how many entries the step differs. n_steps: how many steps
    differ. parameters: the names of the parameters that were not the same to begin with.
    """

    name: str | None
    why: str = ""
    index: tuple = ()
    mine: float | None = None
    theirs: float | None = None
    n_differing: int = 0
    n_steps: int = 0
    parameters: tuple = ()

    def __bool__(self):
        return self.name is None

    def __str__(self):
        if self.name is None:
            text = "The traces agree in every step."
        else:
            text = f"First difference at {self.name}: {self.why}. {self.n_steps} steps differ in all."
        if self.parameters:
            text += f" Parameters that were not the same: {', '.join(self.parameters[:5])}"
            text += f" and {len(self.parameters) - 5} more." if len(self.parameters) > 5 else "."
        return text

    __repr__ = __str__


def compare(mine, theirs, rtol=0.0):
    """Compare two traces step by step, by name.

    rtol=0: the bits must be equal (NaN equals NaN). Else numbers may differ by rtol times the step's largest entry.
    """
    found, n_steps = None, 0
    others = {s.name: s for s in theirs.steps}
    for step in mine.steps:
        difference = _difference(step, others.pop(step.name, None), rtol)
        if difference is not None:
            found, n_steps = found or difference, n_steps + 1
    for name, step in others.items():
        found = found or {"name": name, "why": f"the first trace has no such step ({step.phase})"}
        n_steps += 1
    parameters = tuple(
        name
        for name, value in mine.parameters.items()
        if name not in theirs.parameters or not _equal(value, theirs.parameters[name])
    )
    return Comparison(**(found or {"name": None}), n_steps=n_steps, parameters=parameters)


def _equal(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _difference(step, other, rtol):
    """Return what a Comparison says of two steps of one name, None where they agree."""
    if other is None:
        return {"name": step.name, "why": f"the other trace has no such step ({step.phase})"}
    a, b = step.value, other.value
    if a.shape != b.shape:
        return {"name": step.name, "why": f"shapes {a.shape} and {b.shape}"}
    if a.dtype != b.dtype:
        return {"name": step.name, "why": f"types {a.dtype.name} and {b.dtype.name}"}
    if _equal(a, b):
        return None
    wide, wide_other = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.array(abs(wide - wide_other))  # an array for a single number too
    gap[(wide == wide_other) | (np.isnan(wide) & np.isnan(wide_other))] = 0
    gap[np.isnan(gap)] = np.inf  # one of the two is NaN
    finite = abs(wide[np.isfinite(wide)])
    n = int((gap > rtol * (finite.max() if finite.size else 0.0)).sum())
    if n == 0:
        return None
    index = tuple(int(i) for i in np.unravel_index(gap.argmax(), gap.shape))
    x, y = float(wide[index]), float(wide_other[index])
    where = f" at {index}" if index else ""
    why = f"{n} of {a.size} numbers differ, by up to {gap[index]:.3g}{where}, where they are {x:.8g} and {y:.8g}"
    return {"name": step.name, "why": why, "index": index, "mine": x, "theirs": y, "n_differing": n}
