"""Factors and terms of a layer never seen before: what the ratio and the difference of two gradients look like."""

import numpy as np

from .compare import Clue, axis_subsets


def smooth_in(x, ratio):
    """Whether ratio is a function of x with few turns: sorted by x, it hardly moves from entry to entry."""
    x, ratio = x.ravel(), ratio.ravel()
    if len(x) < 20:
        return False
    low, high = np.percentile(ratio, [5, 95])
    spread = high - low
    clipped = np.clip(ratio[np.argsort(x)], low, high)
    # Random numbers move by a third of their spread at each step; a function with three turns by three spreads in all.
    return spread == 0 or float(np.abs(np.diff(clipped)).sum()) < 0.12 * len(x) * spread


def two_valued(ratio):
    """The one value besides 0, where there is just one."""
    values = np.unique(np.round(ratio, 7))
    other = values[values != 0]
    return float(other[0]) if len(other) == 1 and len(values) == 2 else None


def local_slope(c):
    """The layer works entry by entry: compare the two slopes a/dy and n/dy."""
    dy, x = c.e.dy, c.e.value
    if not c.same_shape or dy is None or x is None or np.shape(dy) != c.n.shape or c.n.size < 20 or np.any(dy == 0):
        return None
    right, yours = c.n / dy, c.a / dy
    if c.equal(c.a, dy):
        line = "the gradient passes through unchanged, so nothing was differentiated here"
        return Clue("missing factor", False, "your gradient is dy itself", line)
    kept, drawn = two_valued(right), two_valued(yours)
    if kept is not None and drawn is not None and abs(kept - drawn) < 1e-6:
        for condition, mask in (("dy > 0", dy > 0), ("x > 0", x > 0), ("x <= 0", x <= 0)):
            if ((yours != 0) == mask).all():
                return Clue(
                    "wrong derivative",
                    False,
                    f"you let entries pass where {condition}; forward lets others pass",
                    "the mask of forward is the mask of backward",
                )
        return Clue(
            "wrong value",
            False,
            "your gradient is masked, but by another mask than forward's",
            "keep the mask that forward used",
        )
    if kept is not None and np.ptp(yours) < 1e-6:
        return Clue("missing factor", False, "forward's mask is missing: entries that were dropped get a gradient")
    if smooth_in(x, right) and smooth_in(x, yours):
        return Clue(
            "wrong derivative",
            False,
            "each entry is off by a factor that depends on x alone: the slope is "
            "not that of the function that forward computes",
            "differentiate the very formula of forward",
        )
    wrong = c.wrong
    if ((wrong == (x < 0)).all() or (wrong == (x > 0)).all()) and not wrong.all():
        side = "negative" if (wrong == (x < 0)).all() else "positive"
        return Clue(
            "wrong derivative",
            False,
            f"only entries where x is {side} are wrong",
            f"the slope for {side} x is another one",
        )
    return None


def mask_factor(c):
    """Right wherever the right gradient is not zero, but not zero where it has to be."""
    if not c.same_shape or c.vanishing:
        return None
    zero = np.abs(c.n) <= c.tol
    if 0.1 < zero.mean() < 0.9 and not c.wrong[~zero].any() and c.wrong[zero].mean() > 0.5:
        return Clue(
            "missing factor",
            False,
            "your gradient is right where the right one is not zero, and is not zero elsewhere: a mask is missing",
            "entries that forward did not let through get no gradient",
        )
    return None


def block_slope(c):
    """Half of the last axis is wrong, and there by a factor that depends on the entry alone."""
    if not c.same_shape or c.n.ndim < 2:
        return None
    bad = c.wrong.any(tuple(range(c.n.ndim - 1)))
    if bad.all() or not bad.any() or c.e.value is None or np.shape(c.e.value) != c.n.shape:
        return None
    a, n, x = (array[..., bad] for array in (c.a, c.n, c.e.value))
    if c.e.dy is not None and c.equal(a, c.e.dy):
        return Clue("missing factor", False, "where it is wrong, your gradient is dy itself: nothing was multiplied in")
    if a.size >= 20 and not np.any(n == 0) and smooth_in(x, a / n):
        return Clue(
            "missing factor",
            False,
            "in part of the last axis each entry is off by a factor that depends on it alone",
            "a factor of the chain rule is left out there",
        )
    return None


def known_factors(c):
    """Arrays that like to be forgotten as factors: name -> array."""
    out = {name: np.asarray(v, float) for name, v in c.e.arrays.items() if np.asarray(v).dtype.kind == "f"}
    x = c.e.value
    if x is not None and np.ndim(x) and np.asarray(x).dtype.kind == "f":
        eps = c.e.attributes.get("eps", 0)
        for axis in range(np.ndim(x)):
            name = f"along axis {axis} of {c.e.name}"
            out[f"the length {name}"] = np.sqrt((x**2).sum(axis, keepdims=True))
            out[f"the standard deviation {name}"] = np.sqrt(x.var(axis, keepdims=True) + eps)
            out[f"the root mean square {name}"] = np.sqrt((x**2).mean(axis, keepdims=True) + eps)
    if c.e.output is not None:
        out["the output"] = np.asarray(c.e.output, float)
    if c.e.dy is not None:
        out["dy"] = np.asarray(c.e.dy, float)
    return out


def factor_along_axes(c):
    """The ratio of the two gradients depends on some axes only, or is an array that forward used."""
    if not c.same_shape or c.vanishing or c.n.ndim == 0 or c.n.size < 4:
        return None
    solid = np.abs(c.n) > 1e-6 * c.scale
    if solid.mean() < 0.3 or np.abs(c.a[~solid]).max(initial=0) > 10 * c.tol:
        return None
    for name, factor in known_factors(c).items():
        for word, f in ((f"times {name}", factor), (f"divided by {name}", 1 / np.where(factor == 0, np.inf, factor))):
            try:
                product = c.n * f
            except ValueError:
                continue  # the shapes do not fit
            if f.size > 1 and product.shape == c.n.shape and c.equal(c.a, product, 10):
                return Clue(
                    "missing factor",
                    False,
                    f"your gradient is the right one {word}",
                    "this factor is left out, or is there twice",
                )
    ratio = np.where(solid, c.a / np.where(solid, c.n, 1), np.nan)
    if np.nanmax(ratio) - np.nanmin(ratio) < 1e-5 * np.nanmax(np.abs(ratio)):
        return None  # one constant: another rule's
    for axes in reversed(axis_subsets(c.n.ndim)):
        if len(axes) == c.n.ndim or any(c.n.shape[axis] == 1 for axis in axes):
            continue
        spread = np.nanmax(ratio, axis=axes, initial=-np.inf) - np.nanmin(ratio, axis=axes, initial=np.inf)
        used = solid.sum(axis=axes) > 1
        if used.any() and spread[used].max() < 1e-5 * np.nanmax(np.abs(ratio)):
            return Clue(
                "missing factor",
                False,
                "your gradient is the right one times a factor that is the same along "
                f"axes {axes} and changes along the others",
                "a factor for each row or each feature is left out, or is there twice",
            )
    return None


def in_span(d, basis, axis):
    """Whether every slice of d along the axis is a combination of the basis' slices there."""
    basis = [np.moveaxis(np.broadcast_to(b, d.shape), axis, -1) for b in basis]
    d = np.moveaxis(d, axis, -1)
    if d.shape[-1] < len(basis) + 2:
        return False
    rows = d.reshape(-1, d.shape[-1])
    columns = np.stack([b.reshape(rows.shape) for b in basis], axis=-1)  # (rows, size, basis)
    gram = columns.swapaxes(1, 2) @ columns
    fit = np.linalg.pinv(gram) @ (columns.swapaxes(1, 2) @ rows[..., None])
    left = rows - (columns @ fit)[..., 0]
    return bool(np.abs(left).max() < 1e-6 * np.abs(d).max())


def low_rank_term(c):
    """The difference is one number for each row, or one times the value or the output: a term of a mean or a norm."""
    if not c.same_shape or c.n.ndim == 0 or c.n.size < 8:
        return None
    d = c.a - c.n
    arrays = {c.e.name: c.e.value, "the output": c.e.output}
    one = np.ones(())
    for axis in reversed(range(d.ndim)):
        if d.shape[axis] > 2 and np.ptp(d, axis=axis).max() < 1e-6 * np.abs(d).max():
            return Clue(
                "missing term",
                False,
                f"the difference is the same number all along axis {axis}: a mean or a sum is missing or too much",
                "a term that every entry along that axis shares",
            )
        for name, array in arrays.items():
            if array is None or np.shape(array) != d.shape:
                continue
            for words, basis in (
                (f"a multiple of {name}", [array]),
                (f"a multiple of {name} plus a constant", [array, one]),
            ):
                if in_span(d, basis, axis):
                    return Clue(
                        "missing term",
                        False,
                        f"the difference is {words} along axis {axis}: the term of a "
                        "norm or a variance is missing or has the wrong weight",
                        "what flows back through the statistics",
                    )
    return None


def reads_another_value(c):
    """A parameter's gradient is Σ dy z: yours is that with an array z at hand, and the right one has another z."""
    dy = c.e.dy
    if c.e.kind != "parameter" or dy is None or np.ndim(dy) < 2 or not c.same_shape or c.vanishing:
        return None
    for name, z in {**c.e.inputs, "the output": c.e.output}.items():
        if z is None or np.asarray(z).dtype.kind != "f" or np.ndim(z) < 2:
            continue
        flat_z, flat_dy = np.reshape(z, (-1, np.shape(z)[-1])), np.reshape(dy, (-1, np.shape(dy)[-1]))
        if c.n.ndim == 2 and len(flat_z) == len(flat_dy) and c.equal(c.a, flat_z.T @ flat_dy):
            return Clue(
                "wrong value",
                False,
                f"your gradient is {name}ᵀ dy, the right one reads another array",
                "dW = (what met W)ᵀ times (the gradient of the product)",
            )
        if c.n.ndim == 1 and np.shape(z) == np.shape(dy):
            for axis in range(np.ndim(dy)):
                if np.shape(dy)[axis] == len(c.n) and c.equal(
                    c.a, (dy * z).sum(tuple(i for i in range(np.ndim(dy)) if i != axis))
                ):
                    return Clue(
                        "wrong value",
                        False,
                        f"your gradient is the sum of dy times {name}, the right one reads another array",
                        "the parameter's gradient reads what met the parameter",
                    )
    return None


def gated_path(c):
    """What is missing is dy times a gate."""
    dy = c.e.dy
    if not c.same_shape or dy is None or np.shape(dy) != c.n.shape or c.n.size < 12 or np.any(dy == 0):
        return None
    gate = (c.n - c.a) / dy
    if gate.min() > 0 and gate.max() < 1 and np.ptp(gate) > 1e-3:
        return Clue(
            "missing path",
            False,
            "what is missing is dy times something between 0 and 1: a gated path",
            "a value that a gate passes on directly also gets the gradient directly, times the gate",
        )
    return None


def flat(c):
    """The same all along an axis where the right gradient varies."""
    if not c.same_shape or c.n.size < 4 or c.n.ndim == 0:
        return None
    for axis in range(c.n.ndim):
        if (
            c.n.shape[axis] > 1
            and np.ptp(c.a, axis=axis).max() <= c.tol < np.abs(c.a).max()
            and np.ptp(c.n, axis=axis).max() > 10 * c.tol
        ):
            return Clue(
                "extra sum",
                False,
                f"your gradient is the same all along axis {axis}, the right one is not",
                "entries along that axis have gradients of their own",
            )
    return None


RULES = (local_slope, mask_factor, block_slope, factor_along_axes, reads_another_value, low_rank_term, gated_path, flat)
