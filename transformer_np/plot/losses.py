"""Curves over the steps of a training: the loss, and the learning rate."""

from ..checks import describe
from .figures import STYLES, one_axes


def losses(values, learning_rates=None, ax=None):
    """Draw the loss of every step on a logarithmic axis; with `learning_rates`, their curve too, on an axis of its own.

    The pale line is each step's loss, the dark one a running mean. Units: nats a token. Returns the Figure.
    Raises ValueError for an empty list.
    """
    if not len(values):
        raise ValueError("losses: got no losses to draw")
    ax = one_axes(ax, (6.0, 3.5))
    steps = range(1, len(values) + 1)
    ax.plot(steps, values, color="tab:blue", alpha=0.35, linewidth=0.8, label="loss of a step")
    ax.plot(steps, _running_mean(values, 0.9), color="tab:blue", linewidth=1.8, label="running mean")
    ax.set_yscale("log")
    ax.set_xlabel("step")
    ax.set_ylabel("loss (nats a token)")
    lines, top = list(ax.get_lines()), ax
    if learning_rates is not None:
        right = top = ax.twinx()
        lines += right.plot(steps, learning_rates, color="tab:orange", linewidth=1, label="learning rate")
        right.set_ylabel("learning rate")
        right.set_ylim(bottom=0)
    top.legend(lines, [line.get_label() for line in lines], fontsize=8)  # on the axes drawn last, so over all lines
    return ax.figure


def learning_rate(schedules, n_steps=None, title=None, ax=None):
    """Draw the learning rate of each step, from step 1 on.

    `schedules` is a schedule, which is a function of the step such as NoamSchedule, or a list of rates; or {name: one
    of these} to compare several. `n_steps` is how far to draw a schedule. Returns the Figure.
    Raises TypeError for what is none of these, ValueError for a schedule without n_steps, or an empty list.
    """
    ax = one_axes(ax, (5.0, 3.0))
    named = schedules if hasattr(schedules, "items") else {None: schedules}
    curves = {name: _rates(schedule, n_steps) for name, schedule in named.items()}
    for i, (name, rates) in enumerate(curves.items()):
        color, dashes = STYLES[i % len(STYLES)][0], ("-", "--", ":", "-.")[i % 4]
        ax.plot(range(1, len(rates) + 1), rates, color=color, linestyle=dashes, label=name)
    ax.set_xlabel("step")
    ax.set_ylabel("learning rate")
    ax.set_ylim(bottom=0)
    if named is schedules:
        ax.legend(fontsize=8)
    if title:
        ax.set_title(title, fontsize=10)
    return ax.figure


def _rates(schedule, n_steps):
    if callable(schedule):
        if not n_steps:
            raise ValueError("learning_rate: of a schedule, say how far to draw it: n_steps=...")
        return [schedule(step) for step in range(1, n_steps + 1)]
    if not hasattr(schedule, "__len__"):
        raise TypeError(f"learning_rate: expected a schedule or a list of rates, got {describe(schedule)}")
    if not len(schedule):
        raise ValueError("learning_rate: got no rates to draw")
    return list(schedule)[:n_steps]


def _running_mean(values, keep):
    """Exponential running mean, corrected for its start at zero as Adam's means are."""
    means, mean = [], 0.0
    for i, value in enumerate(values, 1):
        mean = keep * mean + (1 - keep) * value
        means.append(mean / (1 - keep**i))
    return means
