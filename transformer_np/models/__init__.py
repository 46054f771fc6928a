"""Models: the layers assembled."""

from .files import load
from .transformer import Transformer

MODELS = {"Transformer": Transformer}

__all__ = ["Transformer", "load"]
