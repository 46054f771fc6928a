"""Contracts of batches and sequences: rows of a batch, causality, padding. No finite differences, no step size.

Each disturbs some positions of the inputs and looks which outputs move; then the same of dy and the gradients, which
must be the mirror image: if output i does not depend on input j, then dx at j does not depend on dy at i.
"""

import numpy as np

from ..backend import array_module
from .contracts import Finding, noise_scale, same, size_of
from .trees import differentiable


def rows(trial, reference, epsilon, required=False):
    """Rows of a batch that do not meet in forward must not meet in backward.

    A layer may mix its rows (batch norm does): then nothing is asked, unless `required`.
    """
    ys = [y for y in reference.outputs if differentiable(y) and y.ndim > 1 and len(y) > 1]
    n = len(ys[0]) if ys else 0
    batched = [i for i, x in enumerate(trial.inputs) if x.ndim and len(x) == n]
    if not batched or len(ys) != len(reference.outputs) or any(len(y) != n for y in ys):
        return []
    moved = [_disturbed(x, np.s_[:1]) if i in batched and differentiable(x) else x for i, x in enumerate(trial.inputs)]
    outputs = trial.forward(moved)
    meets = [
        i for i, (a, b) in enumerate(zip(outputs, reference.outputs, strict=True)) if not same(a[1:], b[1:], epsilon)
    ]
    if meets:
        trial.backward(reference.dys)
        return (
            [Finding("batch rows", "a change in row 0 of the batch changes the output of other rows")]
            if required
            else []
        )
    if not trial.subject.takes_upstream:
        return []
    dys = [_disturbed(dy, np.s_[:1]) for dy in reference.dys]
    _, gradients, _ = trial.gradients(dys)
    mixed = []
    for w in trial.arrays:
        g, was = gradients[w.name], reference.gradients[w.name]
        if w.leaf in batched and g is not None and was is not None and g.shape == was.shape and g.shape[:1] == (n,):
            scale = max(size_of(was), noise_scale(reference))
            if not same(g[1:], was[1:], epsilon, scale):
                mixed.append(w.name)
    if not mixed:
        return []
    return [
        Finding(
            "batch rows",
            f"forward keeps the rows of the batch apart, but in backward the gradient of "
            f"{', '.join(mixed)} in other rows changes with row 0 of dy",
        )
    ]


def causality(trial, reference, epsilon, names=None):
    """Output t depends on inputs up to t only, and dx at t on dy from t on only; both exactly.

    Time is the last axis but one of float arrays and the last of integer ones. `names`: the inputs meant, by default
    all that are as long as the output.
    """
    y = reference.outputs[0]
    length = y.shape[-2]
    meant = [
        i
        for i, x in enumerate(trial.inputs)
        if _length(x) == length and x.dtype.kind != "b" and (names is None or trial.names[i] in names)
    ]
    if not meant:
        return [Finding("causality", f"no input has the output's length {length}")]
    found = []
    for t in sorted({1, length // 2, length - 1} - {0, length}):
        moved = [_later_changed(x, t) if i in meant else x for i, x in enumerate(trial.inputs)]
        after = trial.forward(moved)[0]
        if not _exactly(after[..., :t, :], y[..., :t, :]):
            found.append(
                Finding(
                    "causality",
                    f"outputs before position {t} change when the inputs from {t} on change: the layer looks ahead",
                )
            )
            break
        dy = reference.dys[0].copy()
        dy[..., t:, :] = 0
        _, gradients, _ = trial.gradients([dy, *reference.dys[1:]])
        leaking = [
            w.name
            for w in trial.arrays
            if w.leaf in meant and gradients[w.name] is not None and bool((gradients[w.name][..., t:, :] != 0).any())
        ]
        if leaking:
            found.append(
                Finding(
                    "causality",
                    f"with dy = 0 from position {t} on, the gradient of {', '.join(leaking)} "
                    f"there must be 0: backward looks ahead",
                )
            )
            break
    return found


def padding(trial, reference, epsilon, real):
    """Whatever stands at padded positions changes no real output, and has no gradient; both exactly.

    `real` is boolean, (B, S), True at real positions; the float inputs of length S are disturbed where it is False.
    """
    xp = array_module(trial.inputs[0])
    real = xp.asarray(real, bool)
    meant = [i for i, x in enumerate(trial.inputs) if differentiable(x) and x.shape[:2] == real.shape]
    if not meant:
        return [Finding("padding", f"no float input begins with the mask's shape {real.shape}")]
    pads = ~real
    moved = [_disturbed(x, pads) if i in meant else x for i, x in enumerate(trial.inputs)]
    after, found = trial.forward(moved), []
    own = [y.shape[:2] == real.shape for y in reference.outputs]
    for a, y, aligned in zip(after, reference.outputs, own, strict=True):
        if not (_exactly(a[real], y[real]) if aligned else _exactly(a, y)):
            found.append(Finding("padding", "outputs at real positions change with what stands at padded positions"))
    dys = [dy.copy() for dy in reference.dys]
    for dy, aligned in zip(dys, own, strict=True):
        if aligned:
            dy[pads] = 0
    _, gradients, _ = trial.gradients(dys)
    leaking = [
        w.name
        for w in trial.arrays
        if w.leaf in meant and gradients[w.name] is not None and bool((gradients[w.name][pads] != 0).any())
    ]
    if leaking:
        found.append(Finding("padding", f"the gradient of {', '.join(leaking)} at padded positions must be 0"))
    return found


def _length(x):
    if differentiable(x):
        return x.shape[-2] if x.ndim > 1 else None
    return x.shape[-1] if x.ndim else None


def _disturbed(x, where):
    """A copy with other values at `where`; its other entries are bit for bit the same."""
    out = x.copy()
    out[where] = 1.5 * out[where][..., ::-1] + 0.25 if x.ndim > 1 else 1.5 * out[where] + 0.25
    return out


def _later_changed(x, t):
    """A copy that differs from position t on: floats are moved, ids are put in another order."""
    if differentiable(x):
        out = x.copy()
        out[..., t:, :] = 1.5 * out[..., t:, :] + 0.25
        return out
    out = x.copy()
    out[..., t:] = x[..., :1]
    return out


def _exactly(a, b):
    return bool((a == b).all())
