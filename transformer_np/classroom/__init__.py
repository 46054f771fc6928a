"""For courses and self-study: exercises that say whether an answer is right."""

from .exercises import check, check_function, check_hidden, digest

__all__ = ["check", "check_function", "check_hidden", "digest"]
