"""The layers, each with a hand-written forward and backward, in the order of the paper."""

from .activations import ReLU
from .attention import ScaledDotProductAttention
from .decoder import Decoder, DecoderLayer
from .dropout import Dropout
from .embedding import Embedding
from .encoder import Encoder, EncoderLayer
from .feed_forward import FeedForward
from .layer_norm import LayerNorm
from .linear import Linear
from .multi_head_attention import MultiHeadAttention
from .output_projection import OutputProjection
from .positions import LearnedPositions, SinusoidalPositions
from .softmax import Softmax

__all__ = [
    "Decoder",
    "DecoderLayer",
    "Dropout",
    "Embedding",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "LayerNorm",
    "LearnedPositions",
    "Linear",
    "MultiHeadAttention",
    "OutputProjection",
    "ReLU",
    "ScaledDotProductAttention",
    "SinusoidalPositions",
    "Softmax",
]
