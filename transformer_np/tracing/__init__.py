"""What happened inside: every intermediate of a forward and a backward, by name and in order."""

from .run import trace
from .step import Step
from .trace import Trace

__all__ = ["Step", "Trace", "trace"]
