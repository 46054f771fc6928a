"""Optimisers, the paper's learning-rate schedule, and gradient clipping."""

from .adam import Adam, AdamW
from .clipping import clip_grad_norm
from .schedules import NoamSchedule
from .sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "NoamSchedule", "clip_grad_norm"]
