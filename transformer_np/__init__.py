"""The Transformer, written out by hand in NumPy: every layer with an explicit forward and backward.

import transformer_np as tnp
model = tnp.Transformer(src_vocab_size=100, tgt_vocab_size=120, d_model=64, n_heads=4, d_ff=256)
"""

import importlib

from . import layers, masks, optim
from .generation import beam_search, greedy, sample
from .losses import CrossEntropy, SumOfLosses
from .models import BERT, GPT, T5, ConvEncoder, Llama, Seq2SeqRNN, Transformer, ViT, load
from .module import Module, Parameter, inference
from .optim import SGD, Adam, AdamW, LinearSchedule, NoamSchedule, clip_grad_norm
from .version import __version__

# Opened when first named, so that `import transformer_np` costs little more than `import numpy`: name -> room it is in.
_ON_DEMAND = {
    "TrainStep": "training",
    "checking": None,
    "classroom": None,
    "data": None,
    "gradcheck": "checking",
    "interop": None,
    "plot": None,
    "trace": "tracing",
    "tracing": None,
    "training": None,
}

__all__ = [
    "BERT",
    "GPT",
    "SGD",
    "T5",
    "Adam",
    "AdamW",
    "ConvEncoder",
    "CrossEntropy",
    "LinearSchedule",
    "Llama",
    "Module",
    "NoamSchedule",
    "Parameter",
    "Seq2SeqRNN",
    "SumOfLosses",
    "TrainStep",
    "Transformer",
    "ViT",
    "__version__",
    "beam_search",
    "checking",
    "classroom",
    "clip_grad_norm",
    "data",
    "gradcheck",
    "greedy",
    "inference",
    "interop",
    "layers",
    "load",
    "masks",
    "optim",
    "plot",
    "sample",
    "trace",
    "tracing",
    "training",
]


def __getattr__(name):
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = _ON_DEMAND[name]
    if room is None:
        return importlib.import_module(f".{name}", __name__)
    return getattr(importlib.import_module(f".{room}", __name__), name)


def __dir__():
    return __all__
