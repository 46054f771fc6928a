"""A trace as a table: for every step its shape and what its numbers are like."""

import html
from dataclasses import dataclass

import numpy as np

HEADINGS = ("name", "shape", "dtype", "mean", "std", "norm", "zeros", "NaN")


@dataclass(frozen=True)
class Row:
    """A step's name, shape (in letters too where the source gives them) and type; over all its numbers the mean, the
    standard deviation and the norm (root of the sum of squares); the share of zeros; how many are NaN.
    """

    name: str
    phase: str
    shape: tuple
    letters: str
    dtype: str
    mean: float
    std: float
    norm: float
    zeros: float
    nans: int

    def cells(self):
        """The row as text."""
        shape = f"{self.letters} = {self.shape}" if self.letters else f"{self.shape}"
        numbers = (f"{x:.4g}" for x in (self.mean, self.std, self.norm))
        return (self.name, shape, self.dtype, *numbers, f"{self.zeros:.1%}", str(self.nans or ""))


def row_of(step):
    """Return the Row of a step. Sums are taken in float64; of a mask, True counts as 1."""
    x = step.value.astype(np.float64)
    with np.errstate(all="ignore"):  # infinite numbers are shown, not warned of
        mean, std, norm = x.mean(), x.std(), np.sqrt((x * x).sum())
    zeros, nans = float((x == 0).mean()), int(np.isnan(x).sum())
    return Row(
        step.name,
        step.phase,
        step.value.shape,
        step.letters,
        step.value.dtype.name,
        *(float(n) for n in (mean, std, norm)),
        zeros,
        nans,
    )


class Table:
    """Rows that print as text, and as a table in a notebook. `rows` holds the numbers."""

    def __init__(self, steps, title=""):
        self.rows, self.title = [row_of(step) for step in steps], title

    def __len__(self):
        return len(self.rows)

    def __str__(self):
        return as_text(self.title, HEADINGS, [row.cells() for row in self.rows])

    __repr__ = __str__

    def _repr_html_(self):
        return as_html(self.title, HEADINGS, [row.cells() for row in self.rows], words=2)


def select(steps, phase=None, module=None):
    """Return the steps of a phase, and of a layer and all inside it.

    Raises ValueError for a phase that there is not, KeyError for a layer without steps.
    """
    phases = ("forward", "loss", "backward")
    if phase is not None and phase not in phases:
        raise ValueError(f"table: phase must be one of {', '.join(map(repr, phases))}, got {phase!r}")
    if module is not None and not any(_is_inside(s.module, module) for s in steps):
        raise KeyError(f"no step belongs to a layer {module!r}; layers are {_some(steps)}")
    chosen = [s for s in steps if phase is None or s.phase == phase]
    return chosen if module is None else [s for s in chosen if _is_inside(s.module, module)]


def _is_inside(name, module):
    return module == "" or name == module or name.startswith(module + ".")


def _some(steps, most=8):
    names = list(dict.fromkeys(s.module for s in steps if s.module))
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def as_text(title, headings, rows):
    """Lay rows of text out in columns; the first two to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = [title] if title else []
    for row in (headings, *rows):
        cells = [c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def as_html(title, headings, rows, words):
    """The same for a notebook; the first `words` columns are set to the left."""

    def line(row, tag):
        cells = (
            f'<{tag} style="text-align:{"left" if i < words else "right"}">{html.escape(cell)}</{tag}>'
            for i, cell in enumerate(row)
        )
        return f"<tr>{''.join(cells)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    caption = f"<caption>{html.escape(title)}</caption>" if title else ""
    return f"<table>{caption}<thead>{line(headings, 'th')}</thead><tbody>{body}</tbody></table>"
