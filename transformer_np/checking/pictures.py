"""Pictures of a check: two gradients and their difference, the error against the step, the Taylor slope."""

import numpy as np


def draw(report, name=None):
    """Draw one array of a report, by default the first wrong one (else the first); returns a matplotlib Figure.

    Raises ValueError for a report without arrays, KeyError for a name that is not there.
    """
    from matplotlib.figure import Figure

    if not report.arrays:
        raise ValueError(f"plot: the report of {report.subject} ({report.status}) compared no array")
    wrong = [a for a in report.arrays if a.status != "PASS"]
    array = report.array(name) if name is not None else (wrong or report.arrays)[0]
    has_maps = array.numeric is not None and array.analytic is not None and array.numeric.shape == array.analytic.shape
    figure = Figure(figsize=(14 if has_maps else 8, 3.2), layout="constrained")
    figure.suptitle(f"{report.subject}: gradient of {array.name} {array.shape}: {array.status}")
    axes = figure.subplots(1, 5 if has_maps else 2)
    if has_maps:
        _maps(figure, axes[:3], array)
    _error_against_step(axes[-2], array)
    _taylor_slope(axes[-1], array)
    return figure


def _matrix(values):
    """Any array as a matrix: the last axis across, all others down."""
    return values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, 1)


def _maps(figure, axes, array):
    analytic, numeric = _matrix(array.analytic), _matrix(array.numeric)
    limit = max(np.abs(analytic).max(initial=0), np.abs(numeric).max(initial=0)) or 1.0
    difference = analytic - numeric
    span = np.abs(difference).max(initial=0) or 1.0
    for axis, title, values, top in zip(
        axes,
        ("backward (analytic)", "differences (numeric)", "difference"),
        (analytic, numeric, difference),
        (limit, limit, span),
        strict=True,
    ):
        image = axis.imshow(values, cmap="RdBu_r", vmin=-top, vmax=top, aspect="auto")
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("last axis")
        figure.colorbar(image, ax=axis, shrink=0.8)
    axes[0].set_ylabel("other axes")


def _few_ticks(axis):
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.xaxis.set_major_locator(LogLocator(numticks=5))
    axis.xaxis.set_minor_formatter(NullFormatter())


def _error_against_step(axis, array):
    axis.set_title("error against step", fontsize=9)
    axis.set_xlabel("step h (relative)")
    axis.set_ylabel("|analytic - numeric|")
    steps = [m for m in array.steps if m is not None]
    if steps:
        h = [m.step for m in steps]
        axis.loglog(h, [max(m.off, 1e-300) for m in steps], "o-", label="difference")
        axis.loglog(h, [max(m.bar + m.kink, 1e-300) for m in steps], "s--", label="error bar")
        axis.legend(fontsize=8)
        _few_ticks(axis)


def _taylor_slope(axis, array):
    axis.set_title("Taylor remainder", fontsize=9)
    axis.set_xlabel("step h (relative)")
    axis.set_ylabel("|f(x+hu) - f(x) - h<g,u>|")
    if array.taylor:
        h, remainder = np.asarray(array.taylor.steps), np.asarray(array.taylor.remainders)
        rate = array.taylor.rate
        top = max(remainder[0], 1e-300)
        axis.loglog(
            h, np.maximum(remainder, 1e-300), "o-", label=f"rate {rate:.2f}" if rate is not None else "remainder"
        )
        axis.loglog(h, top * (h / h[0]), ":", label="slope 1: wrong")
        axis.loglog(h, top * (h / h[0]) ** 2, "--", label="slope 2: right")
        axis.axhline(max(array.taylor.floor, 1e-300), color="0.6", linewidth=0.8, label="rounding")
        axis.legend(fontsize=7)
        _few_ticks(axis)
