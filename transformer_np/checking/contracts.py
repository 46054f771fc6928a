"""What forward and backward owe their caller besides the right numbers, one small function a contract.

Each takes the trial and the reference run (`outputs`, `dys`, `gradients`) and returns a list of `Finding`s: empty where
the contract is kept. None of them needs a finite difference, so they are exact and cheap.
"""

from dataclasses import dataclass

import numpy as np

from ..backend import array_module, to_numpy
from .differences import epsilon_of
from .trees import differentiable, is_array


@dataclass
class Finding:
    """A broken contract: which one, what was seen, and the outcome it leads to."""

    contract: str
    message: str
    status: str = "FAIL"

    def to_dict(self):
        """The same as plain values."""
        return {"contract": self.contract, "message": self.message, "status": self.status}


@dataclass
class Reference:
    """The first clean run: outputs, upstream gradients, name -> gradient, and what backward returned."""

    outputs: list
    dys: list
    gradients: dict
    returned: object


def tolerance(epsilon):
    """How far two computations of the same thing may differ, relative to their size: rounding, with room."""
    return max(1e-9, 2e4 * epsilon)


def same(a, b, epsilon, scale=None):
    """Say whether two arrays are equal up to rounding of `scale`, by default of their largest entry."""
    if a is None or b is None:
        return a is None and b is None
    if a.shape != b.shape:
        return False
    if not a.size:
        return True
    xp = array_module(a)
    size = max(float(xp.abs(a).max()), float(xp.abs(b).max())) if scale is None else scale
    return bool(xp.abs(a - b).max() <= tolerance(epsilon) * size) or bool((a == b).all())


def coarsest(epsilon, *arrays):
    """The rounding error of the least exact: epsilon, or one of the arrays."""
    return max([epsilon, *(epsilon_of(a.dtype) for a in arrays if differentiable(a))])


def size_of(*arrays):
    """The largest entry of some arrays, None left out."""
    return max((float(array_module(a).abs(a).max()) for a in arrays if a is not None and a.size), default=0.0)


def noise_scale(reference):
    """A size below which a gradient may be nothing but rounding: what is left when numbers as large as dy cancel."""
    return 1e-4 * size_of(*reference.gradients.values(), *reference.dys)


def unequal(reference, gradients, epsilon):
    """Name the gradients that differ from those of the reference by more than rounding."""
    least = noise_scale(reference)
    return [
        name
        for name, gradient in gradients.items()
        if not same(
            gradient,
            reference.gradients[name],
            coarsest(epsilon, gradient),
            max(size_of(gradient, reference.gradients[name]), least),
        )
    ]


def _list(names):
    return ", ".join(names)


def aliasing(trial, reference, epsilon):
    """Outputs share no memory with inputs: changing one would change the other."""
    found = []
    outputs = trial.forward()
    for i, y in enumerate(outputs):
        for name, x in zip(trial.names, trial.inputs, strict=True):
            if y is x or (isinstance(y, np.ndarray) and isinstance(x, np.ndarray) and np.may_share_memory(y, x)):
                label = f"output {i}" if len(outputs) > 1 else "the output"
                found.append(
                    Finding(
                        "aliasing",
                        f"{label} shares memory with the input {name}: return a copy, "
                        "or changing one changes the other",
                    )
                )
    trial.backward(reference.dys)
    return found


def integers(trial, reference, epsilon):
    """Integer and boolean inputs have no gradient: backward gives None for them."""
    return [
        Finding(
            "integers",
            f"{name} is {trial.inputs[trial.names.index(name)].dtype.name} and has no gradient: "
            "backward must return None for it",
        )
        for kind, name in trial.problems
        if kind == "integers"
    ]


def repeatability(trial, reference, epsilon):
    """A run with other inputs in between leaves no trace: the same inputs give the same gradients again."""
    rng = np.random.default_rng(1)
    others = [
        array_module(x).asarray(rng.permutation(to_numpy(x).ravel()).reshape(x.shape), x.dtype) if x.size else x
        for x in trial.inputs
    ]
    _attempt(trial, others, reference)
    outputs, gradients, _ = trial.gradients(reference.dys)
    found = []
    if not all(same(a, b, epsilon) for a, b in zip(outputs, reference.outputs, strict=True) if differentiable(a)):
        found.append(
            Finding(
                "repeatability",
                "the same inputs give another output after a run with other inputs: "
                "something is left over from an earlier call",
            )
        )
    changed = unequal(reference, gradients, epsilon)
    if changed:
        found.append(
            Finding(
                "repeatability",
                f"the same inputs give another gradient of {_list(changed)} after a run with "
                "other inputs: something is left over from an earlier call",
            )
        )
    return found


def _attempt(trial, inputs, reference):
    """Run the subject on other inputs; a refusal is not what is tested here."""
    try:
        trial.gradients(reference.dys, inputs)
    except (ValueError, IndexError, TypeError, RuntimeError, FloatingPointError):
        trial.forward()


def accumulation(trial, reference, epsilon):
    """Backward adds to `.grad`: two runs without clearing in between give the sum."""
    slots = [w for w in trial.arrays if w.slot is not None and w.slot.accumulates]
    if not slots:
        return []
    trial.gradients(reference.dys)
    trial.forward()
    trial.backward(reference.dys)
    twice = trial.parameter_gradients()
    found, least = [], noise_scale(reference)
    for w in slots:
        once = reference.gradients[w.name]
        if once is None or same(twice[w.name], 2 * once, epsilon, max(2 * size_of(once), least)):
            continue
        replaced = same(twice[w.name], once, epsilon)
        found.append(
            Finding(
                "accumulation",
                f"a second run must add to the gradient of {w.name}, "
                + ("but it replaces it: use +=" if replaced else "but it gives neither the sum nor the same"),
            )
        )
    return found


def second_backward(trial, reference, epsilon):
    """A second backward without a forward is refused, or gives the same input gradients and adds the same again."""
    trial.gradients(reference.dys)
    try:
        returned = trial.backward(reference.dys)
    except Exception:  # refusing is right, whatever the words
        return []
    inputs = trial.input_gradients(returned)
    changed = unequal(reference, inputs, epsilon)
    least = noise_scale(reference)
    for name, gradient in trial.parameter_gradients().items():
        once = reference.gradients[name]
        if once is not None and not any(same(gradient, n * once, epsilon, max(size_of(once), least)) for n in (1, 2)):
            changed.append(name)
    if not changed:
        return []
    return [
        Finding(
            "second backward",
            f"a second backward without a forward gives a wrong gradient of {_list(changed)}: "
            "refuse it with an error, or keep what backward needs unchanged",
        )
    ]


def linearity(trial, reference, epsilon):
    """Backward is linear in the upstream gradient: backward(a u + b v) = a backward(u) + b backward(v)."""
    if not trial.subject.takes_upstream:
        return []
    other = trial.draw_upstream(reference.outputs, np.random.default_rng(2))
    a, b = 2.5, -0.75
    _, v, _ = trial.gradients(other)
    _, mixed, _ = trial.gradients([a * u + b * w for u, w in zip(reference.dys, other, strict=True)])
    broken, least = [], noise_scale(reference)
    for name, u in reference.gradients.items():
        if u is None or v[name] is None or mixed[name] is None or u.shape != mixed[name].shape:
            continue
        scale = max(a * size_of(u) - b * size_of(v[name]), least)
        if not same(mixed[name], a * u + b * v[name], coarsest(epsilon, u), scale):
            broken.append(name)
    if not broken:
        return []
    return [
        Finding(
            "linearity",
            f"the gradient of {_list(broken)} is not linear in the upstream gradient dy: it must enter "
            "every term exactly once",
        )
    ]


def zero_upstream(trial, reference, epsilon):
    """A zero upstream gradient gives zero gradients, exactly."""
    if not trial.subject.takes_upstream:
        return []
    _, gradients, _ = trial.gradients([array_module(y).zeros_like(y) for y in reference.outputs])
    wrong = [name for name, g in gradients.items() if g is not None and bool((g != 0).any())]
    return (
        [Finding("zero upstream", f"with dy = 0 the gradient of {_list(wrong)} must be 0, and is not")] if wrong else []
    )


def strided(trial, reference, epsilon):
    """Inputs and dy that are not contiguous give the same numbers."""
    found = []
    for label, spread in (("every second entry of a larger array", _every_second), ("a transposed array", _transposed)):
        inputs = [spread(x) for x in trial.inputs]
        found += _compare(trial, reference, inputs, [spread(dy) for dy in reference.dys], label, "strided", epsilon)
        if found:
            break
    return found


def broadcast(trial, reference, epsilon):
    """Inputs and dy that repeat one row by stride 0 (and so cannot be written) give what full copies give."""
    dys = [_one_row(dy) for dy in reference.dys]
    inputs = [_one_row(x) if differentiable(x) else x for x in trial.inputs]
    if not trial.subject.takes_upstream:
        dys = reference.dys
    try:
        outputs, gradients, returned = trial.gradients([dy.copy() for dy in dys], [x.copy() for x in inputs])
    except (ValueError, IndexError, FloatingPointError):  # equal rows are no valid input here
        return []
    dense = Reference(outputs, dys, gradients, returned)
    return _compare(trial, dense, inputs, dys, "an array of stride 0 (np.broadcast_to)", "broadcast", epsilon)


def _compare(trial, reference, inputs, dys, label, contract, epsilon):
    try:
        outputs, gradients, _ = trial.gradients(dys, inputs)
    except Exception as error:
        return [Finding(contract, f"fails where an input or dy is {label}: {type(error).__name__}: {error}")]
    wrong = [
        f"output {i}"
        for i, (a, b) in enumerate(zip(outputs, reference.outputs, strict=True))
        if differentiable(a) and not same(a, b, epsilon)
    ]
    wrong += [f"the gradient of {name}" for name in unequal(reference, gradients, epsilon)]
    if not wrong:
        return []
    return [Finding(contract, f"{_list(wrong)} changes where an input or dy is {label} with the same values")]


def _every_second(x):
    if not x.ndim:
        return x
    wide = array_module(x).zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def _transposed(x):
    return x.T.copy().T if x.ndim > 1 else x


def _one_row(x):
    return array_module(x).broadcast_to(x[:1], x.shape) if x.ndim > 1 and len(x) > 1 else x.copy()


def gradient_aliasing(reference):
    """Say which returned gradients share memory with dy or each other: legal until someone adds in place."""
    notes = []
    parts = [
        p
        for p in (reference.returned if isinstance(reference.returned, tuple) else (reference.returned,))
        if isinstance(p, np.ndarray)
    ]
    if any(np.may_share_memory(p, dy) for p in parts for dy in reference.dys if isinstance(dy, np.ndarray)):
        notes.append("a returned gradient shares memory with dy: adding to it in place would change dy")
    if any(np.may_share_memory(p, q) for i, p in enumerate(parts) for q in parts[:i]):
        notes.append("two returned gradients share memory: adding to one in place changes the other")
    return notes


CONTRACTS = (
    aliasing,
    integers,
    repeatability,
    accumulation,
    second_backward,
    linearity,
    zero_upstream,
    strided,
    broadcast,
)


def check_contracts(contracts, trial, reference, epsilon, skip=()):
    """Run some contracts; return the findings and the names of the contracts that were run."""
    found, names = [], []
    for contract in contracts:
        name = contract.__name__.replace("_", " ")
        if name in skip or contract.__name__ in skip:
            continue
        names.append(name)
        before = [x.copy() if is_array(x) else x for x in trial.inputs]
        try:
            found += contract(trial, reference, epsilon)
        except Exception as error:
            found.append(Finding(name, f"raised {type(error).__name__}: {error}"))
        trial.inputs = before
    return found, names
