"""Training: one step of any model."""

from .step import TrainStep

__all__ = ["TrainStep"]
