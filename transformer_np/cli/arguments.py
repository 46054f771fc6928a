"""Numbers on the command line: types for argparse that say what was expected."""

import argparse
import math


def whole_number(least):
    """Return an argparse type: a whole number of at least `least`."""

    def parse(text):
        try:
            number = int(text)
        except ValueError:
            number = None
        if number is None or number < least:
            raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}, got {text!r}")
        return number

    return parse


def positive(text):
    """Argparse type: a number above 0, not infinite."""
    number = _number(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return number


def probability(text):
    """Argparse type: a number from 0 up to, but not, 1."""
    number = _number(text)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 up to, but not, 1, got {text!r}")
    return number


def not_negative(text):
    """Argparse type: a number of at least 0, not infinite."""
    number = _number(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text!r}")
    return number


def share(text):
    """Argparse type: a number above 0 and at most 1."""
    number = _number(text)
    if not 0 < number <= 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0 and at most 1, got {text!r}")
    return number


def _number(text):
    """The number a text stands for; NaN, which no check lets through, where it stands for none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
