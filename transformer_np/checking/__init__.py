"""The gradient checker: proves a backward right, or says what is wrong with it. Knows nothing of the layers here."""

from .gradcheck import gradcheck
from .report import OUTCOMES, Report

__all__ = ["OUTCOMES", "Report", "gradcheck"]
