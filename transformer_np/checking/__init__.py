"""The gradient checker: proves a backward right, or says what is wrong with it. Knows nothing of the layers here."""

from .gradcheck import gradcheck
from .report import OUTCOMES, Report

__all__ = ["OUTCOMES", "Report", "gradcheck", "power"]


def __getattr__(name):
    if name == "power":  # with it comes the whole catalogue of mistakes, which a check of one layer does not need
        from .mutation_score import power

        return power
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
