"""The layers, each with a hand-written forward and backward, in the order of the paper."""

from .activations import ReLU, Sigmoid, SiLU, Tanh
from .additive_attention import AdditiveAttention
from .alibi import ALiBi
from .attention import ScaledDotProductAttention
from .blockwise_attention import BlockwiseAttention
from .checkpoint import Checkpoint
from .conv1d import Conv1D
from .decoder import Decoder, DecoderLayer
from .dropout import Dropout
from .embedding import Embedding
from .encoder import Encoder, EncoderLayer
from .feed_forward import FeedForward, GatedFeedForward
from .gelu import GELU
from .gru import GRU
from .layer_norm import LayerNorm
from .linear import Linear
from .lstm import LSTM
from .multi_head_attention import MultiHeadAttention
from .output_projection import OutputProjection
from .patch_embedding import PatchEmbedding
from .pooler import Pooler
from .positions import LearnedPositions, SinusoidalPositions
from .relative_position_bias import RelativePositionBias
from .rms_norm import RMSNorm
from .rnn import RNN
from .rotary import RotaryPositions
from .softmax import Softmax

__all__ = [
    "GELU",
    "GRU",
    "LSTM",
    "RNN",
    "ALiBi",
    "AdditiveAttention",
    "BlockwiseAttention",
    "Checkpoint",
    "Conv1D",
    "Decoder",
    "DecoderLayer",
    "Dropout",
    "Embedding",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "GatedFeedForward",
    "LayerNorm",
    "LearnedPositions",
    "Linear",
    "MultiHeadAttention",
    "OutputProjection",
    "PatchEmbedding",
    "Pooler",
    "RMSNorm",
    "ReLU",
    "RelativePositionBias",
    "RotaryPositions",
    "ScaledDotProductAttention",
    "SiLU",
    "Sigmoid",
    "SinusoidalPositions",
    "Softmax",
    "Tanh",
]
