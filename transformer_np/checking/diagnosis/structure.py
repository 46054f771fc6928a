"""Whole-array identities: mistakes that show in any layer, whatever it computes.

Each rule looks at the gradient beside the right one and returns a Clue or None. None of them knows a layer.
"""

import math
from itertools import permutations

import numpy as np

from .compare import Clue, axis_subsets


def zero(c):
    """Never filled in."""
    if np.all(c.a == 0) and not c.vanishing:
        return Clue(
            "zero",
            True,
            "your gradient is zero everywhere: never computed, never stored, or overwritten",
            "every array that forward reads gets a gradient",
        )
    return None


def sign(c):
    """The right numbers with the other sign."""
    if c.same_shape and not c.vanishing and c.equal(c.a, -c.n):
        return Clue(
            "sign", True, "your gradient is the right one with the opposite sign", "a minus too many, or one lost"
        )
    return None


def sizes(c):
    """Numbers of the problem that like to turn up as factors: value -> what it is called."""
    named = {}

    def put(value, words):
        if value > 0 and abs(value - 1) > 1e-9:
            named.setdefault(round(float(value), 12), []).append(words)

    shape = np.shape(c.e.output)
    if len(shape) >= 2:
        put(shape[0], f"the batch size B = {shape[0]}")
    if len(shape) >= 3:
        put(math.prod(shape[:-1]), f"the number of tokens {' · '.join(map(str, shape[:-1]))}")
        put(shape[-2], f"the length T = {shape[-2]}")
    if shape:
        put(shape[-1], f"the last size of the output, {shape[-1]}")
        put(math.sqrt(shape[-1]), f"the root of the last size of the output, √{shape[-1]}")
        put(math.prod(shape), f"the number of outputs, {math.prod(shape)}")
    for name, array in c.e.arrays.items():
        for axis, size in enumerate(np.shape(array)):
            put(size, f"the size of axis {axis} of {name}, {size}")
            put(math.sqrt(size), f"the root of the size of axis {axis} of {name}, √{size}")
        if np.ndim(array) > 1:
            put(np.size(array), f"the number of entries of {name}, {np.size(array)}")
            leading = math.prod(np.shape(array)[:-1])
            put(leading, f"the number of tokens of {name}, {leading}")
        if np.asarray(array).dtype.kind in "b":
            put(np.count_nonzero(array), f"the number of positions that count in {name}")
    for name, value in c.e.attributes.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            put(value, f"{name} = {value:g}")
            put(math.sqrt(value), f"√{name} = √{value:g}")
            if value < 1:
                put(1 - value, f"1 - {name} = {1 - value:g}")
            if name in ("n_heads", "num_heads", "heads") and shape:
                put(math.sqrt(shape[-1] / value), f"√d_k = √{shape[-1] / value:g}")
    put(2, "2")
    return named


def constant(c):
    """The right numbers times one number; the number is looked up among the sizes of the problem."""
    if not c.same_shape or c.vanishing or np.all(c.a == 0) or c.n.size < 2:
        return None
    ratio = float((c.a * c.n).sum() / (c.n * c.n).sum())
    if abs(ratio + 1) < 1e-7 or abs(ratio - 1) < 1e-7 or not c.equal(c.a, ratio * c.n, max(1, abs(ratio))):
        return None
    names = []
    for value, words in sizes(c).items():
        if math.isclose(abs(ratio), value, rel_tol=1e-6):
            names += words
        elif math.isclose(abs(ratio), 1 / value, rel_tol=1e-6):
            names += [f"one over {word}" for word in words]
    meaning = f", which is {' and also '.join(names)}" if names else ""
    line = "some division or multiplication is done twice, or never"
    if math.isclose(ratio, 2, rel_tol=1e-6):
        line = "it may have been added twice: once by the layer and once by its owner"
    return Clue("constant factor", True, f"your gradient is the right one times {ratio:.6g}{meaning}", line)


def transposed(c):
    """The right numbers with axes swapped."""
    if c.vanishing or sorted(c.a.shape) != sorted(c.n.shape):
        return None
    for order in permutations(range(c.n.ndim)):
        if order != tuple(range(c.n.ndim)) and c.equal(c.a, c.n.transpose(order)):
            return Clue(
                "transposed",
                True,
                f"your gradient is the right one with its axes in the order {order}",
                "the gradient has the axes of the value itself, in the same order",
            )
    return None


def reshaped(c):
    """The right numbers in another order."""
    if c.vanishing or c.a.size != c.n.size or c.n.size < 4 or c.equal(c.a, c.n):
        return None
    if not c.equal(np.sort(c.a.ravel()), np.sort(c.n.ravel())) or transposed(c):
        return None
    alike = 1 - len(np.unique(np.round(c.n.ravel() / c.scale, 9))) / c.n.size
    if alike > 0.5:
        return None  # most numbers are alike, so a different order proves nothing
    how = "in another order: something was reshaped where axes had to be swapped, or cut in the wrong places"
    line = "reshape keeps the order in memory; it is no transpose"
    for axis in range(c.n.ndim):
        if c.equal(c.a, np.flip(c.n, axis)):
            how, line = f"in reverse along axis {axis}", "forward and backward count from the same end"
        elif any(c.equal(c.a, np.roll(c.n, shift, axis)) for shift in range(1, c.n.shape[axis])):
            how = f"shifted round along axis {axis}"
            line = "look for an offset that only one of forward and backward has"
    return Clue("reshaped", alike < 0.2, f"your gradient holds exactly the right numbers, but {how}", line)


def missing_sum(c):
    """Another shape: the sum over the axes along which the value was shared is missing."""
    if c.a.shape == c.n.shape or c.a.size < c.n.size or c.a.size == 0:
        return None
    for axes in axis_subsets(c.a.ndim):
        for word, fold in (("summed", np.sum), ("averaged", np.mean)):
            folded = fold(c.a, axis=axes)
            if folded.size == c.n.size and c.equal(folded.reshape(c.n.shape), c.n):
                return Clue(
                    "missing sum",
                    True,
                    f"{word} over axes {axes} your gradient would be right",
                    "a value that broadcasting shared along an axis gets the sum of the gradients along it",
                )
            if (
                folded.ndim == c.n.ndim
                and folded.shape[1:] == c.n.shape[1:]
                and len(folded) < len(c.n)
                and c.equal(folded, c.n[: len(folded)])
                and np.all(np.abs(c.n[len(folded) :]) <= c.tol)
            ):
                return Clue(
                    "missing sum",
                    True,
                    f"{word} over axes {axes} the rows in use would be right",
                    "a value that broadcasting shared along an axis gets the sum of the gradients along it",
                )
    return None


def wrong_shape(c):
    """Another shape, and no sum makes it right: say what the shapes tell."""
    if c.same_shape:
        return None
    if sorted(c.a.shape) == sorted(c.n.shape):
        return Clue("transposed", False, f"your gradient has shape {c.a.shape}, the axes of {c.n.shape} swapped")
    if c.a.size == c.n.size:
        return Clue("reshaped", False, f"your gradient has shape {c.a.shape}, not {c.n.shape}")
    if c.a.size > c.n.size:
        return Clue(
            "missing sum",
            False,
            "your gradient has too many entries: an axis was not summed over",
            "sum over every axis along which the value was shared",
        )
    return Clue("extra sum", False, "your gradient has too few entries: an axis was summed away")


def extra_sum(c):
    """Summed or averaged over an axis that had to stay, then spread out again or left short."""
    if c.vanishing or c.n.ndim == 0:
        return None
    for axes in axis_subsets(c.n.ndim):
        if all(c.n.shape[axis] == 1 for axis in axes):
            continue
        for word, fold in (("sum", np.sum), ("mean", np.mean)):
            folded = fold(c.n, axis=axes, keepdims=True)
            if (c.same_shape and c.equal(c.a, np.broadcast_to(folded, c.n.shape))) or (
                not c.same_shape and c.a.size == folded.size and c.equal(c.a.ravel(), folded.ravel())
            ):
                return Clue(
                    "extra sum",
                    True,
                    f"your gradient is the {word} of the right one over axes {axes}",
                    "entries along those axes have gradients of their own",
                )
    return None


def other_array(c):
    """The gradient of another array, or with another array's added to it."""
    if c.vanishing:
        return None
    for name, right in c.e.numeric_all.items():
        right = np.asarray(right)
        if name == c.e.name or np.abs(right).max(initial=0) <= 10 * c.tol or c.equal(right, c.n):
            continue
        if c.equal(c.a, right):
            return Clue(
                "other array",
                True,
                f"this is exactly the gradient of {name}",
                "check the names, and the order in which backward returns its gradients",
            )
        if right.ndim > 1 and right.shape != c.n.shape and right.T.shape == c.a.shape and c.equal(c.a, right.T):
            return Clue("other array", True, f"this is the gradient of {name}, transposed", "check the names")
        if c.same_shape and right.shape == c.n.shape and c.equal(c.a, c.n + right):
            return Clue(
                "other array",
                True,
                f"the gradient of {name} has been added to this one",
                "each gradient is accumulated into its own array",
            )
    return None


def stale(c):
    """Left over from the call before, or added to it."""
    old = c.e.previous
    if old is None or np.shape(old) != c.a.shape or np.abs(old).max(initial=0) <= 10 * c.tol:
        return None
    if c.equal(c.a, old) and not c.equal(old, c.n):
        # Not exact: a wrong gradient that does not depend on the inputs is the same in every call.
        return Clue(
            "stale",
            False,
            "this is also the gradient of a call with other inputs: it did not change",
            "backward reads what the latest forward kept",
        )
    if c.same_shape and c.equal(c.a, c.n + old):
        return Clue(
            "stale",
            True,
            "this call's gradient was added to that of the call before",
            "zero the gradients between calls, or return new arrays",
        )
    return None


def residual_path(c):
    """The difference is the upstream gradient itself, or the upstream times another input."""
    dy = c.e.dy
    if not c.same_shape or dy is None or np.shape(dy) != c.n.shape or np.size(dy) < 2:
        return None
    d = c.a - c.n
    if c.equal(d, -dy) and not c.equal(c.a, np.zeros_like(c.a)):
        return Clue(
            "missing path",
            True,
            "what is missing is exactly the upstream gradient dy: the residual path",
            "y = x + f(x) uses x twice, so dx = dy + what comes back through f",
        )
    if c.equal(d, dy):
        return Clue(
            "missing term",
            True,
            "there is exactly one dy too many: the residual path was added twice",
            "dy is added once",
        )
    for name, other in c.e.arrays.items():
        if name != c.e.name and np.shape(other) == c.n.shape and np.asarray(other).dtype.kind == "f":
            for s in (1, -1):
                if c.equal(d, s * dy * other):
                    return Clue(
                        "missing path",
                        False,
                        f"the difference is exactly dy times {name}",
                        f"{c.e.name} is used in more than one place; one path back is missing",
                    )
    return None


# Where these fit exactly, the pattern is the mistake; where the others do, it is a fact whose cause may be another.
PROOFS = (zero, sign, constant, transposed, missing_sum, reshaped)
RULES = (extra_sum, other_array, residual_path)
LAST = (stale,)
