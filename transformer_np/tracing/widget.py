"""A slider over the steps of a trace, for a notebook: one statement at a time, with its numbers."""

import html

import numpy as np


def widget(trace):
    """Return an ipywidgets box: a slider (or the arrow keys) picks a step, and its statement and array are shown.

    The page of `to_html` shows more; this one has the arrays at hand in Python: `box.step` is the step that is shown.
    Raises ImportError where ipywidgets is missing.
    """
    try:
        import ipywidgets
    except ImportError:
        raise ImportError('the widget needs ipywidgets: pip install -e ".[notebooks]"') from None
    slider = ipywidgets.IntSlider(max=len(trace.steps) - 1, description="step", layout={"width": "100%"})
    view = ipywidgets.HTML()
    box = ipywidgets.VBox([slider, view])

    def show(change):
        box.step = trace.steps[slider.value]
        view.value = describe(box.step)

    slider.observe(show, "value")
    show(None)
    return box


def describe(step, most=8):
    """Return a step as HTML: phase, name, statement, shape, and the first `most` rows and columns of its numbers."""
    rows = np.atleast_2d(step.value.reshape(-1, step.value.shape[-1]) if step.value.ndim > 1 else step.value)
    numbers = "\n".join(" ".join(f"{x:>10.4g}" for x in row[:most]) for row in rows[:most])
    cut = " (the first ones)" if rows.shape[0] > most or rows.shape[1] > most else ""
    head = f"{step.phase}: {step.name}"
    shape = f"{step.letters} = {step.value.shape}" if step.letters else str(step.value.shape)
    return (
        f"<b>{html.escape(head)}</b><br><code>{html.escape(step.source or '')}</code><br>"
        f"{html.escape(shape)}{cut}<pre>{html.escape(numbers)}</pre>"
    )
