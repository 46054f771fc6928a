"""A trace in a few lines: each larger part, what came out of it, and how large the gradient was that came back."""

import numpy as np

from .table import as_text

HEADINGS = ("layer", "kind", "output", "norm", "norm of its gradient")
MOST = 24


def summary(trace):
    """Return the text that print(trace) shows: at most MOST lines, of the outermost layers."""
    counts = [(len(trace.forward), "forward"), (len(trace.loss_steps), "loss"), (len(trace.backward), "backward")]
    told = ", ".join(f"{n} {phase}" for n, phase in counts if n)
    loss = "" if trace.loss is None else f", loss {float(trace.loss):.6g}"
    title = f"Trace of {type(trace.model).__name__}: {len(trace)} steps ({told}){loss}"
    rows = _rows(trace)
    text = as_text(title, HEADINGS, [row for _, row in rows])
    return text + "\ntrace.table() has every step, trace[name] one array, trace.ledger() the costs"


def _rows(trace):
    """(depth, cells) of the outermost layers, as deep as MOST lines allow."""
    outputs = {}
    for step in trace.forward:
        if step.method in ("forward", "__call__") and step.module and step.value.dtype.kind not in "iub":
            outputs[step.module] = step
    depth, chosen = 1, []
    while depth < 6:
        rows = [step for name, step in outputs.items() if name.count(".") < depth]
        if len(rows) > MOST:
            break
        chosen, depth = rows, depth + 1
    chosen = chosen or [step for name, step in outputs.items() if "." not in name][:MOST]
    order = {name: i for i, name in enumerate(dict.fromkeys(s.module for s in trace.forward))}
    return [(s.module, _cells(trace, s)) for s in sorted(chosen, key=lambda s: order[s.module])]


def _cells(trace, step):
    gradient = trace.gradient_of(step)
    back = "" if gradient is None else f"{_norm(gradient.value):.4g}"
    return (step.module, step.kind, str(step.value.shape), f"{_norm(step.value):.4g}", back)


def _norm(x):
    return float(np.sqrt((x.astype(np.float64) ** 2).sum()))
