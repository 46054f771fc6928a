"""Generation: from a trained model to text."""

from .greedy import greedy

__all__ = ["greedy"]
