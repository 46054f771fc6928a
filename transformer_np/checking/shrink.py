"""The smallest inputs that still fail, and three lines that show the failure again."""

import numpy as np

from ..backend import array_module
from .trees import differentiable, leaves, rebuild

MOST_TRIES = 40


def reproduce(check, subject, inputs, keywords):
    """Fill `report.smallest` and `report.snippet`. Only inputs are cut: axes that parameters fix cannot shrink."""
    report = check.report
    if (
        check.upstream is not None
        or check.call["reseed"] is not None
        or not any(a.status == "FAIL" for a in report.arrays)
    ):
        report.snippet = _snippet_with_inputs(check, subject, keywords)
        return
    wanted = next(a.name for a in report.arrays if a.status == "FAIL")
    arrays = [a for _, a in leaves(tuple(inputs)) + leaves(dict(keywords))]
    names, tries = list(check.trial.names), [0]

    def fails(candidates, seed):
        tries[0] += 1
        return _still_fails(check, subject, inputs, keywords, candidates, wanted, seed)

    smallest = _shrunk(arrays, lambda candidates: tries[0] < MOST_TRIES and fails(candidates, check.seed))
    report.smallest = {n: a.shape for n, a in zip(names, smallest, strict=True)}
    fresh = _fresh(smallest, np.random.default_rng(check.seed))
    if fresh is not None and fails(fresh, check.seed):
        report.snippet = _snippet_from_seed(check, subject, inputs, keywords, names, smallest)
    else:
        report.snippet = _snippet_with_inputs(check, subject, keywords)


def _still_fails(check, subject, inputs, keywords, candidates, wanted, seed):
    supply = iter(candidates)
    args, kwargs = rebuild(tuple(inputs), supply), rebuild(dict(keywords), supply)
    inner = type(check)(
        seed=seed,
        dtype=check.dtype,
        randomize=check.randomize,
        contracts=False,
        directions=1,
        explain=False,
        only=wanted,
    )
    inner.call = dict(check.call)
    report = inner.run(subject, args, kwargs)
    check.trial.forwards += report.forwards
    return report.status == "FAIL"


def _shrunk(arrays, fails):
    """Cut axes shorter while it still fails: all axes of one length together first, then each input's axis alone."""
    arrays = list(arrays)
    for length in sorted({n for a in arrays for n in a.shape if n > 1}, reverse=True):
        axes = [(i, axis) for i, a in enumerate(arrays) for axis, n in enumerate(a.shape) if n == length]
        groups = [axes] + ([[pair] for pair in axes] if len(axes) > 1 else [])
        by_axis = {}
        for i, axis in axes:
            by_axis.setdefault(axis, []).append((i, axis))
        groups[1:1] = [g for g in by_axis.values() if len(g) > 1 and len(by_axis) > 1]
        for group in groups:
            for n in (1, 2, 3):
                if any(arrays[i].shape[axis] != length for i, axis in group) or n >= length:
                    break
                cut = list(arrays)
                for i, axis in group:
                    cut[i] = cut[i][(slice(None),) * axis + (slice(0, n),)]
                if fails([a.copy() for a in cut]):
                    arrays = cut
                    break
    return arrays


def _fresh(arrays, rng):
    """Draw inputs of the same shapes: normal floats, ids in the range seen; None where that is something else."""
    drawn = []
    for a in arrays:
        if array_module(a) is not np or a.dtype.kind == "b":
            return None
        drawn.append(
            rng.standard_normal(a.shape)
            if differentiable(a)
            else rng.integers(int(a.min()), int(a.max()) + 1, a.shape)
            if a.size
            else a
        )
    return drawn


def _draws(arrays):
    return [
        f"rng.standard_normal({tuple(a.shape)})"
        if differentiable(a)
        else f"rng.integers({int(a.min())}, {int(a.max()) + 1}, {tuple(a.shape)})"
        for a in arrays
    ]


def _imports(subject):
    """Say in code how to get at the subject, as far as that can be known."""
    if isinstance(subject, tuple):
        names = ", ".join(f.__name__ for f in subject)
        return f"from {subject[0].__module__} import {names}", f"({names})"
    if callable(subject) and hasattr(subject, "__name__"):
        return f"from {subject.__module__} import {subject.__name__}", subject.__name__
    return f"import numpy as np, transformer_np as tnp  # layer = your {type(subject).__name__}", "layer"


def _keyword_text(keywords):
    return "".join(
        f", {name}={value!r}" if isinstance(value, (int, float, str, bool, type(None))) else f", {name}={name}"
        for name, value in keywords.items()
    )


def _options(check):
    return (
        f", seed={check.seed}"
        + (", replay=True" if check.call["replay"] else "")
        + ("" if check.randomize else ", randomize=False")
    )


def _snippet_from_seed(check, subject, inputs, keywords, names, arrays):
    line, label = _imports(subject)
    if not line.startswith("import numpy"):
        line += "; import numpy as np, transformer_np as tnp"
    draws = ", ".join(_draws(arrays))
    plain = all(leaves((value,)) and len(leaves((value,))) == 1 for value in inputs) and not leaves(dict(keywords))
    if not plain:
        return _snippet_with_inputs(check, subject, keywords)
    return (
        f"{line}\nrng = np.random.default_rng({check.seed}); inputs = [{draws}]\n"
        f"print(tnp.gradcheck({label}, *inputs{_keyword_text(keywords)}{_options(check)}))"
    )


def _snippet_with_inputs(check, subject, keywords):
    line, label = _imports(subject)
    if not line.startswith("import numpy"):
        line += "; import transformer_np as tnp"
    return (
        f"{line}\ninputs = ({', '.join(check.trial.names)},)  # the very arrays of this check\n"
        f"print(tnp.gradcheck({label}, *inputs{_keyword_text(keywords)}{_options(check)}))"
    )
