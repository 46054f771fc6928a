"""Exercises in a notebook: is this answer right? If not, say what is off about it, kindly, and never raise.

    tnp.classroom.check(dx, expected, hint="which way round is the product?")
    tnp.classroom.check_function(softmax_backward, reference, dy, y)
    tnp.classroom.check_hidden(n_parameters, "3c19a5a34d97")

Each prints one line that starts with "right", "not yet: " or "not answered yet". An answer may be a number, a text, an
array, or a tuple of those. The third knows the answer only by its digest, so that the notebook does not show it;
`python -c "import transformer_np as tnp; print(tnp.classroom.digest(42))"` makes one.
"""

import hashlib
import math

import numpy as np

from ..backend import to_numpy
from .differences import difference

SALT = "transformer_np exercise: "


def check(answer, expected, hint="", rtol=1e-4, atol=1e-7):
    """Print whether `answer` equals `expected`, numbers to `rtol` of the larger one plus `atol`; else what differs.

    The tolerances let float32 pass, and finite differences. `hint` is printed after what differs. Nothing is raised
    for a wrong answer.
    """
    if unanswered(answer):
        print("not answered yet")
    else:
        say(difference(answer, expected, rtol, atol), hint)


def check_function(fn, reference, *arrays, hint="", rtol=1e-4, atol=1e-7):
    """Print whether fn(*arrays) equals reference(*arrays), as `check` does.

    Each gets copies of its own. Where `fn` raises, or writes into what it was given, that is said instead.
    """
    if unanswered(fn):
        return print("not answered yet")
    given, own = _copies(arrays), _copies(arrays)
    try:
        answer = fn(*given)
    except Exception as error:  # the learner's code: whatever goes wrong in it is news for them, and no crash
        return say(f"your function raised {type(error).__name__}: {error}", hint)
    if unanswered(answer):
        return print("not answered yet")
    wrong = difference(answer, reference(*own), rtol, atol)
    if not wrong:
        pairs = [(i, a, b) for i, (a, b) in enumerate(zip(given, arrays, strict=True)) if hasattr(a, "shape")]
        changed = [i for i, a, b in pairs if difference(a, b, 0, 0)]
        if changed:
            wrong = f"the result is right, but your function changes its argument {changed[0]}; work on a copy"
    say(wrong, hint)


def check_hidden(answer, expected_digest, hint=""):
    """Print whether `answer` is the one that `digest` made `expected_digest` from.

    Numbers count as equal where three significant digits agree (a hair next to a rounding edge counts for either side),
    whole numbers exactly, texts without regard to capitals and spaces around them. Wrong kinds of answers are just
    wrong.
    """
    if unanswered(answer):
        print("not answered yet")
    elif expected_digest in {_hashed(form) for form in _forms(answer)}:
        print("right")
    elif expected_digest in {_hashed(form) for form in _forms(_number_in(answer))}:
        say("that is the number, but written as a text: leave out the quotes", hint="")
    else:
        say("this is another answer than the one looked for", hint)


def digest(answer):
    """Return the digest of a number, a text or a truth value for `check_hidden`, 12 hexadecimal digits.

    It hides the answer from the eye, not from a search: there are few numbers of three digits.
    Raises TypeError for anything else.
    """
    forms = _forms(answer)
    if not forms:
        raise TypeError(f"digest: the answer must be a number, a text or a truth value, got {type(answer).__name__}")
    return _hashed(forms[0])


def unanswered(answer):
    """Say whether `answer` is still what the exercise came with: `...`, None, or a tuple of such."""
    if isinstance(answer, (tuple, list)) and len(answer):
        return all(unanswered(part) for part in answer)
    return answer is None or answer is ...


def say(wrong, hint):
    """Print "right" where nothing is wrong, else what is, and the hint."""
    if not wrong:
        print("right")
    else:
        print(f"not yet: {wrong}" + (f" (hint: {hint})" if hint else ""))


def _copies(arrays):
    return [a.copy() if hasattr(a, "copy") else a for a in arrays]


def _hashed(form):
    return hashlib.sha256((SALT + form).encode()).hexdigest()[:12]


def _number_in(answer):
    """The number that a text spells, or None."""
    try:
        return float(answer) if isinstance(answer, str) else None
    except ValueError:
        return None


def _forms(answer):
    """The ways to write an answer down that count as the same, the most exact one first; none for other kinds."""
    if isinstance(answer, str):
        return ["text " + " ".join(answer.casefold().split())]
    if hasattr(answer, "shape") and hasattr(answer, "dtype") and answer.size == 1:
        answer = to_numpy(answer).reshape(()).item()
    if isinstance(answer, (bool, np.bool_)):
        return [f"truth {bool(answer)}"]
    if not isinstance(answer, (int, float)) or not math.isfinite(answer):
        return []
    whole = [f"whole {int(answer)}"] if answer == int(answer) else []
    # 0.1255 and 0.12549999 round to different digits: the neighbours of the answer may speak for it.
    rounded = [f"number {answer * (1 + off) + 0.0:.2e}" for off in (0, 5e-4, -5e-4)]
    return whole + rounded if isinstance(answer, int) or not whole else rounded + whole
