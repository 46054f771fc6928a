"""Which entries are wrong: rows of repeated ids, positions, masked places, heads, or a few entries alone."""

import numpy as np

from .compare import Clue


def partly_wrong(c):
    """True where some entries are right and some are not."""
    return c.same_shape and c.n.ndim > 0 and c.wrong.any() and not c.wrong.all()


def repeated_ids(c):
    """Rows of a table are wrong exactly where an id occurs more than once."""
    if not partly_wrong(c) or c.n.ndim < 2:
        return None
    rows = set(np.flatnonzero(c.wrong.reshape(len(c.n), -1).any(1)).tolist())
    for name, ids in c.e.inputs.items():
        ids = np.asarray(ids)
        if ids.dtype.kind not in "iu" or ids.size == 0 or ids.min() < 0 or ids.max() >= len(c.n):
            continue
        counts = np.bincount(ids.ravel(), minlength=len(c.n))
        repeated, once = set(np.flatnonzero(counts > 1).tolist()), set(np.flatnonzero(counts == 1).tolist())
        if rows == repeated and len(rows) > 1:
            return Clue(
                "repeated ids",
                bool(once),
                f"only the rows of ids that occur more than once in {name} are wrong: {sorted(rows)}",
                "a row that was read in several places gets the sum of all their gradients",
            )
        if rows < repeated and len(rows) > 1:
            return Clue(
                "repeated ids",
                False,
                f"the wrong rows {sorted(rows)} are ids that occur more than once in {name}",
                "a row that was read in several places gets the sum of all their gradients",
            )
        if len(rows) == 1 and np.abs(c.a[list(rows)]).max() <= c.tol:
            return Clue(
                "positions",
                False,
                f"only row {min(rows)} is wrong, and it is zero: was it taken for padding?",
                "a row that forward reads has a gradient",
            )
    return None


def masked(c):
    """Wrong only where a mask or an ignored target says that nothing counts, or only where it counts."""
    if not partly_wrong(c):
        return None
    masks = {name: np.asarray(m) for name, m in c.e.arrays.items() if np.asarray(m).dtype.kind == "b"}
    pad = next((v for k, v in c.e.attributes.items() if k in ("pad_id", "ignore_index", "padding_idx")), None)
    for name, ids in c.e.inputs.items():
        if np.asarray(ids).dtype.kind in "iu" and pad is not None:
            masks[name] = np.asarray(ids) != pad
    for name, mask in masks.items():
        if mask.ndim == 0 or mask.shape != c.n.shape[: mask.ndim] or mask.all():
            continue
        wrong = c.wrong.reshape(*mask.shape, -1).any(-1)
        if not (wrong & mask).any():
            return Clue(
                "positions",
                False,
                f"only positions that {name} leaves out are wrong",
                "where nothing counts, the gradient is exactly zero",
            )
    return None


def heads_of(c):
    """The number of heads, from the object or from a (B, H, T, K) shape."""
    for name in ("n_heads", "num_heads", "heads", "n_head", "h"):
        value = c.e.attributes.get(name)
        if isinstance(value, int) and value > 1:
            return value
    return c.n.shape[1] if c.n.ndim == 4 else None


def one_head(c):
    """Wrong in some heads, right in others."""
    H = heads_of(c) if partly_wrong(c) else None
    if not H:
        return None
    if c.n.ndim == 4 and c.n.shape[1] == H:
        by_head = c.wrong.any((0, 2, 3))
    elif c.n.shape[-1] % H == 0 and c.n.shape[-1] > H:
        by_head = c.wrong.reshape(*c.n.shape[:-1], H, -1).any(-1).reshape(-1, H).any(0)
    else:
        return None
    bad = np.flatnonzero(by_head)
    if len(bad) == H:
        return None
    return Clue(
        "one head",
        False,
        f"only head {', '.join(map(str, bad))} of {H} is wrong"
        if len(bad) == 1
        else f"only heads {', '.join(map(str, bad))} of {H} are wrong",
        "every head has a gradient of its own",
    )


def positions(c):
    """Wrong along some indices of one axis, and there everywhere."""
    if not partly_wrong(c) or c.n.ndim < 2:
        return None
    for axis in range(c.n.ndim):
        others = tuple(i for i in range(c.n.ndim) if i != axis)
        bad = c.wrong.any(others)
        # Nearly every entry of a bad index is wrong, and few indices are bad: then the place matters.
        if bad.sum() <= len(bad) / 2 and c.wrong.compress(bad, axis=axis).mean() > 0.9:
            where = [int(i) for i in np.flatnonzero(bad)]
            size = c.n.shape[axis]
            word = {(0,): "the first index", (size - 1,): "the last index"}.get(tuple(where), f"indices {where}")
            if axis == c.n.ndim - 1:
                continue
            verb = "is" if len(where) == 1 else "are"
            return Clue(
                "positions",
                False,
                f"only {word} of axis {axis} (of size {size}) {verb} wrong",
                "is that place left out, or treated as padding?",
            )
    return None


def shifted(c):
    """The right numbers, one place or a few further along an axis."""
    if not c.same_shape or c.vanishing:
        return None
    for axis in range(c.n.ndim):
        a, n = np.moveaxis(c.a, axis, 0), np.moveaxis(c.n, axis, 0)
        for k in range(1, len(n) // 2 + 1):
            for there, here, way in ((a[k:], n[:-k], "late"), (a[:-k], n[k:], "early")):
                kept = np.abs(here) > 10 * c.tol
                # Enough of the gradient has to be seen in its new place, and that it is not the old one.
                if kept.sum() < max(4, (np.abs(n) > 10 * c.tol).sum() / 2) or not c.equal(there, here):
                    continue
                if np.abs(n[:-k] - n[k:]).max() <= 10 * c.tol:
                    continue
                places = "place" if k == 1 else "places"
                return Clue(
                    "positions",
                    False,
                    f"your gradient is the right one, {k} {places} too {way} along axis {axis}",
                    "look for an offset that only one of forward and backward has",
                )
    return None


def some_entries(c):
    """A few wrong entries among right ones."""
    if not partly_wrong(c) or c.wrong.mean() > 0.4:
        return None
    first = ", ".join(str(tuple(int(i) for i in index)) for index in np.argwhere(c.wrong)[:4])
    text = f"only {int(c.wrong.sum())} of {c.n.size} entries are wrong: {first}"
    return Clue("some entries", False, text, c.small_error)


RULES = (shifted, masked, repeated_ids, one_head, positions)
LAST = (some_entries,)
