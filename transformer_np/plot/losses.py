"""The loss curve, and the learning rate under it."""

from .figures import figure


def losses(values, learning_rates=None, ax=None):
    """Draw the loss of every step on a logarithmic axis; with `learning_rates`, their curve too, on an axis of its own.

    The pale line is each step's loss, the dark one a running mean. Units: nats a token. Returns the Figure.
    Raises ValueError for an empty list.
    """
    if not len(values):
        raise ValueError("losses: got no losses to draw")
    if ax is None:
        _, axes = figure(size=(6.0, 3.5))
        ax = axes[0, 0]
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


def _running_mean(values, keep):
    """Exponential running mean, corrected for its start at zero as Adam's means are."""
    means, mean = [], 0.0
    for i, value in enumerate(values, 1):
        mean = keep * mean + (1 - keep) * value
        means.append(mean / (1 - keep**i))
    return means
