"""What is different between an answer and the expected one, in words that help: shape, kind, sign, factor, entry."""

import numpy as np

from ..backend import to_numpy

KINDS = {"b": "boolean", "i": "whole numbers", "u": "whole numbers", "f": "floating-point numbers"}


def difference(answer, expected, rtol, atol):
    """Return "" where `answer` equals `expected`, numbers to |a - e| <= rtol max(|a|, |e|) + atol; else what differs.

    Both may be numbers, texts, truth values, arrays, or tuples and lists of those, compared part by part.
    """
    if isinstance(expected, (tuple, list)) and not _is_flat(expected):
        return _parts_difference(answer, expected, rtol, atol)
    if isinstance(expected, str) or isinstance(answer, str):
        same = isinstance(expected, str) and isinstance(answer, str) and answer.split() == expected.split()
        return "" if same else f"{answer!r:.60} is not what was looked for"
    if answer is None or answer is ...:
        return "this part is not answered yet"
    if isinstance(answer, (tuple, list)) and any(part is ... or part is None for part in answer):
        i = next(i for i, part in enumerate(answer) if part is ... or part is None)
        return f"part {i} of the answer: this part is not answered yet"
    a, e = _as_array(answer), _as_array(expected)
    if a is None:
        return f"expected an array or a number, got {type(answer).__name__}"
    return _shape_difference(a, e) or _kind_difference(a, e) or _value_difference(a, e, rtol, atol)


def _is_flat(parts):
    """Whether a tuple or list is just a way to write an array: numbers only."""
    return all(np.ndim(part) == 0 and isinstance(part, (bool, int, float, np.number, np.bool_)) for part in parts)


def _parts_difference(answer, expected, rtol, atol):
    if not isinstance(answer, (tuple, list)):
        return f"expected {len(expected)} parts, got one {type(answer).__name__}"
    if len(answer) != len(expected):
        return f"expected {len(expected)} parts, got {len(answer)}"
    for i, (a, e) in enumerate(zip(answer, expected, strict=True)):
        if e is None and a is not None:
            return f"part {i} of the answer: expected None"
        wrong = "" if e is None else difference(a, e, rtol, atol)
        if wrong:
            return f"part {i} of the answer: {wrong}"
    return ""


def _as_array(value):
    try:
        array = np.asarray(to_numpy(value) if hasattr(value, "dtype") else value)
    except (TypeError, ValueError):  # a ragged list, or no numbers at all
        return None
    return array if array.dtype.kind in "biuf" else None


def _shape_difference(a, e):
    if a.shape == e.shape:
        return ""
    wrong = f"the shape is {a.shape}, expected {e.shape}"
    if a.ndim == e.ndim and a.shape == e.shape[::-1]:
        return wrong + ": transposed?"
    if a.squeeze().shape == e.squeeze().shape:
        return wrong + ": an axis of size 1 too many or too few"
    if a.ndim == e.ndim + 1 and e.shape in {a.shape[:i] + a.shape[i + 1 :] for i in range(a.ndim)}:
        return wrong + ": is a sum over an axis missing?"
    return wrong


def _kind_difference(a, e):
    """Kinds matter where a mask, or whole numbers in an array, are expected. A whole number passes for 3.0."""
    a_kind, e_kind = KINDS[a.dtype.kind], KINDS[e.dtype.kind]
    if a_kind == e_kind or (e.dtype.kind == "f" and a.dtype.kind in "iu"):
        return ""
    if e.dtype.kind in "iu" and a.dtype.kind == "f" and e.ndim == 0:
        return ""
    return f"expected {e_kind}, got {a_kind} ({a.dtype.name})"


def _value_difference(a, e, rtol, atol):
    if e.dtype.kind == "b":
        wrong = a != e
    else:
        a, e = a.astype(np.float64), e.astype(np.float64)
        if not np.isfinite(a[np.isfinite(e)]).all():
            bad = ~np.isfinite(a) & np.isfinite(e)
            return f"{_count(bad)} NaN or infinite{_where(bad)}"
        wrong = ~_close(a, e, rtol, atol)
    if not wrong.any():
        return ""
    if e.dtype.kind == "b":
        return "True and False are swapped" if wrong.all() and e.size > 1 else f"{_count(wrong)} wrong{_where(wrong)}"
    return _pattern(a, e, rtol, atol) or _worst(a, e, wrong)


def _close(a, e, rtol, atol):
    same = (a == e) | (np.isnan(a) & np.isnan(e))
    with np.errstate(invalid="ignore"):  # inf - inf, which `same` has settled
        return same | (abs(a - e) <= rtol * np.maximum(abs(a), abs(e)) + atol)


def _pattern(a, e, rtol, atol):
    """One mistake that explains all entries: the sign, a factor, a constant, a transpose; "" where there is none."""
    if not np.isfinite(e).all() or not abs(e).max() > atol:
        return ""
    if not abs(a).max() > atol:
        return "all entries are zero" if a.ndim else "it should not be zero"
    if _close(-a, e, rtol, atol).all():
        return "the sign is wrong, the rest is right"
    factor = float((a * e).sum() / (e * e).sum())
    if a.size > 1 and factor and _close(a / factor, e, rtol, atol).all():
        return f"every entry is {factor:.4g} times what it should be"
    offset = float((a - e).mean())
    if a.size > 1 and _close(a - offset, e, rtol, atol).all():
        return f"every entry is too {'large' if offset > 0 else 'small'} by {abs(offset):.4g}"
    if a.ndim >= 2 and a.shape[-1] == a.shape[-2] and _close(a.swapaxes(-1, -2), e, rtol, atol).all():
        return "it is transposed, the rest is right"
    return ""


def _worst(a, e, wrong):
    if not a.ndim:
        close = "close, but " if abs(a - e) <= 0.02 * abs(e) else ""
        return f"{close}{float(a):.6g} is not the number looked for"
    error = np.where(wrong, np.nan_to_num(abs(a - e), nan=np.inf), -1)
    i = np.unravel_index(int(error.argmax()), a.shape)
    index = "[" + ", ".join(map(str, map(int, i))) + "]"
    return f"{_count(wrong)} wrong; the largest difference is at {index}: {a[i]:.6g}, expected {e[i]:.6g}"


def _count(bad):
    n = int(bad.sum())
    if not bad.ndim:
        return "the answer is"
    return f"{n} of {bad.size} entries {'is' if n == 1 else 'are'}"


def _where(bad):
    if not bad.ndim:
        return ""
    return ", the first at [" + ", ".join(str(int(i)) for i in np.argwhere(bad)[0]) + "]"
