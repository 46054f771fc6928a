"""The Transformer, written out by hand in NumPy: every layer with an explicit forward and backward.

import transformer_np as tnp
model = tnp.Transformer(src_vocab_size=100, tgt_vocab_size=120, d_model=64, n_heads=4, d_ff=256)
"""

from . import layers, masks, optim
from .generation import greedy
from .losses import CrossEntropy
from .models import Transformer, load
from .module import Module, Parameter, inference
from .optim import SGD, Adam, AdamW, LinearSchedule, NoamSchedule, clip_grad_norm
from .training import TrainStep
from .version import __version__

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "CrossEntropy",
    "LinearSchedule",
    "Module",
    "NoamSchedule",
    "Parameter",
    "TrainStep",
    "Transformer",
    "__version__",
    "clip_grad_norm",
    "greedy",
    "inference",
    "layers",
    "load",
    "masks",
    "optim",
]
