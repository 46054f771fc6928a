"""Models: the layers assembled."""

from .bert import BERT
from .files import load
from .gpt import GPT
from .llama import Llama
from .t5 import T5
from .transformer import Transformer
from .vit import ViT

MODELS = {"BERT": BERT, "GPT": GPT, "Llama": Llama, "T5": T5, "Transformer": Transformer, "ViT": ViT}

__all__ = ["BERT", "GPT", "T5", "Llama", "Transformer", "ViT", "load"]
