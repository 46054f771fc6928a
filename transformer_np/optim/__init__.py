"""Optimisers, the paper's learning-rate schedule, and gradient clipping."""

from .adam import Adam, AdamW
from .clipping import clip_grad_norm
from .schedules import LinearSchedule, NoamSchedule
from .sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "LinearSchedule", "NoamSchedule", "clip_grad_norm"]
