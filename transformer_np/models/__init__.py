"""Models: the layers assembled."""

from .bert import BERT
from .conv_encoder import ConvEncoder
from .files import load
from .gpt import GPT
from .llama import Llama
from .seq2seq_rnn import Seq2SeqRNN
from .t5 import T5
from .transformer import Transformer
from .vit import ViT

MODELS = {model.__name__: model for model in (BERT, GPT, T5, ConvEncoder, Llama, Seq2SeqRNN, Transformer, ViT)}

__all__ = ["BERT", "GPT", "T5", "ConvEncoder", "Llama", "Seq2SeqRNN", "Transformer", "ViT", "load"]
