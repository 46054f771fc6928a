"""A museum of mistakes: layers of the Transformer with their right backward, and the named ways to get it wrong.

One file a layer. `LAYERS` lists them in the paper's order, `MISTAKES` lists every wrong backward in them.
docs/known-mistakes.md is the same as a page.
"""

from .activations import GELU, GELU_TANH, RELU, SILU
from .attention import ATTENTION, DROPPED
from .cross_entropy import CROSS_ENTROPY
from .dropout import DROPOUT
from .embedding import EMBEDDING, TIED
from .feed_forward import FEED_FORWARD
from .layer_norm import LAYER_NORM
from .linear import LINEAR
from .multi_head_attention import MULTI_HEAD, SELF
from .museum import Layer, Mistake
from .positions import LEARNED, ROTARY
from .residual import POST, PRE
from .rms_norm import RMS_NORM
from .softmax import LOG_SOFTMAX, SOFTMAX

LAYERS = (
    EMBEDDING,
    TIED,
    LEARNED,
    ROTARY,
    LINEAR,
    SOFTMAX,
    ATTENTION,
    DROPPED,
    MULTI_HEAD,
    SELF,
    RELU,
    GELU,
    GELU_TANH,
    SILU,
    FEED_FORWARD,
    LAYER_NORM,
    RMS_NORM,
    DROPOUT,
    POST,
    PRE,
    LOG_SOFTMAX,
    CROSS_ENTROPY,
)
MISTAKES = tuple(mistake for layer in LAYERS for mistake in layer.mistakes)

__all__ = ["LAYERS", "MISTAKES", "Layer", "Mistake"]
