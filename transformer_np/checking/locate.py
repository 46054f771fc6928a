"""Finds the wrong entries of a large gradient by group testing, then confirms them one by one.

A group of entries is moved along one random direction; a group that is right is done with, a group that is wrong is
halved. w wrong entries among n cost about w log2(n) groups instead of n.
"""

from dataclasses import dataclass

import numpy as np

from ..backend import array_module, to_numpy
from .differences import KINK, OK, WRONG

MOST_ENTRIES = 8


@dataclass
class Entry:
    """One entry of a gradient, confirmed: both values and the error bar of the numeric one."""

    index: tuple
    analytic: float
    numeric: float
    bar: float
    verdict: str

    def to_dict(self):
        """The same as plain values."""
        return {
            "index": list(self.index),
            "analytic": self.analytic,
            "numeric": self.numeric,
            "error_bar": self.bar,
            "verdict": self.verdict,
        }


def locate(differences, watched, analytic, most=MOST_ENTRIES):
    """Return up to `most` wrong or kinked entries, confirmed one by one, and whether there may be more."""
    x = differences.trial.value(watched)
    found, groups = [], [np.arange(x.size)]
    suspected = True  # the first group is known to be wrong
    while groups and len(found) < most:
        group = groups.pop()
        if not suspected and _group_is_right(differences, watched, analytic, group):
            continue
        suspected = False
        if len(group) == 1:
            entry = check_entry(differences, watched, analytic, np.unravel_index(int(group[0]), x.shape))
            if entry.verdict != OK:
                found.append(entry)
            continue
        middle = len(group) // 2
        left, right = group[:middle], group[middle:]
        if _group_is_right(differences, watched, analytic, left):
            groups.append(right)
            suspected = True  # the fault is in here, so do not test the whole again
        else:
            groups += [right, left]
            suspected = True
    return found, bool(groups)


def _group_is_right(differences, watched, analytic, group):
    x = differences.trial.value(watched)
    xp = array_module(x)
    mask = np.zeros(x.size)
    mask[group] = 1
    direction = differences.direction(watched, xp.asarray(mask.reshape(x.shape), x.dtype))
    return differences.judge(watched, direction, analytic).verdict == OK


def unit_direction(differences, watched, index):
    """The direction that moves one entry by its unit of length, and that length."""
    x = differences.trial.value(watched)
    direction = array_module(x).zeros_like(x)
    length = float(differences.unit(x)[index])
    direction[index] = length
    return direction, length


def check_entry(differences, watched, analytic, index):
    """Judge one entry; return an `Entry` with derivatives in the entry's own units."""
    index = tuple(int(i) for i in index)
    direction, length = unit_direction(differences, watched, index)
    judged = differences.judge(watched, direction, analytic)
    best = judged.best
    if best is None:
        return Entry(index, float(analytic[index]), float("nan"), float("nan"), KINK)
    return Entry(index, float(analytic[index]), best.value / length, (best.bar + best.kink) / length, judged.verdict)


def numeric_gradient(differences, watched, analytic):
    """Differentiate every entry: (numeric, error bar, verdicts) as NumPy arrays of the array's shape."""
    shape = differences.trial.value(watched).shape
    numeric, bar, verdicts = np.zeros(shape), np.zeros(shape), np.full(shape, OK, dtype=object)
    usable = analytic if analytic is not None and analytic.shape == shape else None
    for index in np.ndindex(shape):
        direction, length = unit_direction(differences, watched, index)
        if usable is None:
            best, verdict = differences.measure(watched, direction, None, differences.step), WRONG
        else:
            judged = differences.judge(watched, direction, usable)
            best, verdict = judged.best, judged.verdict
        verdicts[index] = verdict if best is not None else KINK
        if best is not None:
            numeric[index], bar[index] = best.value / length, best.bar / length
    return numeric, bar, verdicts


def wrong_entries(analytic, numeric, bar, verdicts, most=MOST_ENTRIES):
    """Turn a full comparison into the worst `most` entries and the number of wrong ones."""
    bad = [index for index in np.ndindex(numeric.shape) if verdicts[index] != OK]
    values = to_numpy(analytic)
    bad.sort(key=lambda index: -abs(values[index] - numeric[index]))
    entries = [
        Entry(index, float(values[index]), float(numeric[index]), float(bar[index]), verdicts[index])
        for index in bad[:most]
    ]
    return entries, sum(verdicts[index] == WRONG for index in bad)
