"""From layer to layer: how large the gradients are, and how large the activations."""

import math

import numpy as np

from ..backend import is_float, to_numpy
from ..checks import describe
from .figures import STYLES, one_axes


def gradient_norms(gradients, depth=None, label=None, title=None, ax=None):
    """Draw the norm of the gradient of each layer on a logarithmic axis, the first layer on top.

    `gradients` is a model after its backward, whose parameters are gathered by layer, the norm of a layer being the
    root of the sum of all its squares; or {name: norm, or array}, drawn name by name. `depth` gathers by that many
    parts of the dotted names instead: 1 for "encoder" and "decoder". Draw a second model into the same `ax`, with a
    `label` each, to compare; layers that the first did not have come below. Norms that a logarithmic axis has no place
    for, zero or not finite, are told beside the name. Returns the Figure.
    Raises TypeError for what is neither, ValueError where there is nothing to draw.
    """
    if hasattr(gradients, "named_parameters"):
        arrays = [(name, to_numpy(p.grad)) for name, p in gradients.named_parameters()]
    elif hasattr(gradients, "items"):
        arrays = [(name, to_numpy(value)) for name, value in gradients.items()]
    else:
        raise TypeError(f"gradient_norms: expected a model or {{name: norm}}, got {describe(gradients)}")
    squares = {}
    for name, array in arrays:
        layer = layer_of(name, depth) if depth or hasattr(gradients, "named_parameters") else name
        squares[layer] = squares.get(layer, 0.0) + float(np.sum(np.square(array, dtype=np.float64)))
    norms = {name: math.sqrt(total) for name, total in squares.items()}
    ax, rows = _rows(ax, "gradient_norms", {name: _note(norm, label) for name, norm in norms.items()})
    points = sorted(
        (row, norm if 0 < norm < math.inf else math.nan) for row, norm in zip(rows, norms.values(), strict=True)
    )
    color, marker = STYLES[len(ax.get_lines()) % len(STYLES)]
    ax.plot(
        [norm for _, norm in points],
        [row for row, _ in points],
        color=color,
        marker=marker,
        markersize=5,
        linewidth=1,
        label=label,
    )
    ax.set_xscale("log")
    _plain_ticks(ax.xaxis)
    ax.set_xlabel("norm of the gradient")
    return _finish(ax, title, label)


def activations(outputs, depth=None, label=None, title=None, ax=None):
    """Draw how large the output of each layer is: a dot for the mean, bars of one standard deviation to either side,
    and a hollow mark for the size, the root of the mean square.

    `outputs` is {name: array}, or a trace, whose layers of the model's first level and of its stacks are drawn; with
    `depth`, all layers whose dotted names have up to that many parts. A second model's can be drawn into the same
    `ax`, with a `label` each. Returns the Figure.
    Raises TypeError for what is neither, ValueError where there is nothing to draw.
    """
    if hasattr(outputs, "steps"):
        arrays = _outputs_of(outputs, depth)
    elif hasattr(outputs, "items"):
        arrays = {name: to_numpy(value) for name, value in outputs.items()}
    else:
        raise TypeError(f"activations: expected a trace or {{name: array}}, got {describe(outputs)}")
    ax, rows = _rows(ax, "activations", dict.fromkeys(arrays, ""))
    wide = [np.asarray(a, np.float64) for a in arrays.values()]
    n_before = len(ax.containers)
    color, marker = STYLES[n_before % len(STYLES)]
    rows = np.array(rows) + 0.2 * n_before
    means, stds = [a.mean() for a in wide], [a.std() for a in wide]
    bars = {"color": color, "marker": marker, "markersize": 4, "linestyle": "none", "capsize": 3, "label": label}
    ax.errorbar(means, rows, xerr=stds, **bars)
    sizes = [math.sqrt(np.square(a).mean()) for a in wide]
    ax.plot(sizes, rows, marker=marker, markersize=7, markerfacecolor="none", color=color, linestyle="none")
    ax.axvline(0, color="0.7", linewidth=0.8, zorder=0)
    ax.set_xlabel("mean ± standard deviation\nhollow: root of the mean square")
    return _finish(ax, title, label)


def layer_of(name, depth=None):
    """Return the layer that a dotted name belongs to: up to its first number, "encoder.layers.0"; else its owner.

    With `depth`, the first so many parts of the name.
    """
    parts = name.split(".")
    if depth is None:
        numbers = [i for i, part in enumerate(parts) if part.isdigit()]
        depth = numbers[0] + 1 if numbers else max(len(parts) - 1, 1)
    return ".".join(parts[:depth])


def _outputs_of(trace, depth):
    """Return {layer: what its forward made last, which is what it returned}, in the order in which they ended."""
    outputs = {}
    for step in trace.steps:
        parts = step.module.split(".")
        wanted = len(parts) <= depth if depth else len(parts) == 1 or parts[-1].isdigit()
        made = step.phase == "forward" and step.method == "forward" and step.role in ("assigned", "returned")
        if wanted and made and is_float(step.value):
            name = step.module or "the model"
            outputs.pop(name, None)
            outputs[name] = to_numpy(step.value)
    return outputs


def _rows(ax, who, notes):
    """Give each name of {name: note} a row, the first on top; return the axes and the rows.

    Names that the axes show already keep their rows, new ones come below. A note stands beside its name.
    """
    if not notes:
        raise ValueError(f"{who}: got nothing to draw")
    if ax is None:
        ax = one_axes(size=(5.0, 0.9 + 0.22 * len(notes)))
    there = [text.get_text() for text in ax.get_yticklabels()] if ax.lines or ax.containers else []
    row_of = {text.split(" (")[0]: row for row, text in enumerate(there)}
    for name, note in notes.items():
        if name not in row_of:
            row_of[name] = len(there)
            there.append(name)
        there[row_of[name]] += note
    ax.set_yticks(range(len(there)), there, fontsize=8)
    ax.set_ylim(len(there) - 0.5, -0.5)
    ax.grid(axis="x", color="0.9")
    ax.set_axisbelow(True)
    return ax, [row_of[name] for name in notes]


def _note(norm, label):
    if 0 < norm < math.inf:
        return ""
    return f" ({f'{label}: ' if label else ''}{'zero' if norm == 0 else 'not finite'})"


def _plain_ticks(axis):
    """Ticks at 1, 2, 5 of each decade, as plain numbers: within one decade matplotlib's own crowd."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=9))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def _finish(ax, title, label):
    ax.tick_params(axis="x", labelsize=8)
    if label:
        ax.legend(fontsize=8)
    if title:
        ax.set_title(title, fontsize=10)
    return ax.figure
