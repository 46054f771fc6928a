"""Training: one step of any model, the loop around it, and the folder it leaves."""

from .checkpoint import read_checkpoint, save_checkpoint
from .loop import History, fit
from .memory import keep_freed_memory
from .mixed_precision import LossScaler
from .run import last_run, load_run, load_text_run, load_training, new_run, save_run
from .step import TrainStep
from .translation import attention_of, translate
from .writing import write_on

__all__ = [
    "History",
    "LossScaler",
    "TrainStep",
    "attention_of",
    "fit",
    "keep_freed_memory",
    "last_run",
    "load_run",
    "load_text_run",
    "load_training",
    "new_run",
    "read_checkpoint",
    "save_checkpoint",
    "save_run",
    "translate",
    "write_on",
]
