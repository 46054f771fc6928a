"""Every layer with small random inputs, masks on and dropout on: what the tests of gradients and contract run over.

`CASES[name](rng)` returns (layer, inputs), all in float64.
"""

import numpy as np

from transformer_np.layers import (
    Decoder,
    DecoderLayer,
    Dropout,
    Embedding,
    Encoder,
    EncoderLayer,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    Linear,
    MultiHeadAttention,
    OutputProjection,
    ReLU,
    ScaledDotProductAttention,
    SinusoidalPositions,
    Softmax,
)
from transformer_np.masks import look_ahead_mask

# Pairwise distinct, so that no transposed or swapped axis can go unseen.
H, K, B, S, D, T, F, D_KEY, D_VALUE, V = 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
FLOAT64 = {"dtype": "float64"}


def source_mask():
    """(B, 1, 1, S): sentences of 5, 3, 1 and 4 tokens, padded at the end, in the middle, or at the start."""
    return np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 0, 0], [0, 1, 1, 1, 1]], bool)[:, None, None]


def target_mask():
    """(B, 1, T, T): padding and look-ahead together; the third sentence starts with padding, so its first rows
    may look nowhere at all."""
    real = np.ones((B, T), bool)
    real[1, 4:] = False
    real[2, :2] = False
    return real[:, None, None] & look_ahead_mask(T)


def head_mask(rng):
    """(B, H, T, S): another one for each head, and one row with nothing to look at."""
    mask = rng.random((B, H, T, S)) < 0.6
    mask[1, 1, 2] = False
    return mask


def tied_output(rng):
    """An output projection over the matrix of an embedding."""
    embedding = Embedding(V, D, seed=rng, **FLOAT64)
    return OutputProjection(D, V, weight=embedding.weight, **FLOAT64)


def stack(kind, rng, norm, n_layers=2, **options):
    """An encoder or decoder, or one layer of it, with its inputs."""
    sizes = (D, H, F) if kind in (EncoderLayer, DecoderLayer) else (n_layers, D, H, F)
    layer = kind(*sizes, dropout=0.2, norm=norm, seed=rng, **options, **FLOAT64)
    if kind in (EncoderLayer, Encoder):
        return layer, (rng.standard_normal((B, S, D)), source_mask())
    x, memory = rng.standard_normal((B, T, D)), rng.standard_normal((B, S, D))
    return layer, (x, memory, target_mask(), source_mask())


CASES = {
    "Linear": lambda rng: (Linear(D, F, seed=rng, **FLOAT64), (rng.standard_normal((B, T, D)),)),
    "Linear, one row": lambda rng: (Linear(D, F, seed=rng, **FLOAT64), (rng.standard_normal(D),)),
    "Linear, no bias": lambda rng: (Linear(D, F, False, seed=rng, **FLOAT64), (rng.standard_normal((B, D)),)),
    # 28 ids of 11: repeated ones must add up
    "Embedding": lambda rng: (Embedding(V, D, seed=rng, **FLOAT64), (rng.integers(0, V, (B, T)),)),
    "Embedding, not scaled": lambda rng: (Embedding(V, D, False, seed=rng, **FLOAT64), (rng.integers(0, 3, (B, T)),)),
    "SinusoidalPositions": lambda rng: (SinusoidalPositions(D), (rng.standard_normal((B, T, D)),)),
    "SinusoidalPositions, odd": lambda rng: (SinusoidalPositions(D + 1), (rng.standard_normal((B, T, D + 1)),)),
    "LearnedPositions": lambda rng: (LearnedPositions(D, F, seed=rng, **FLOAT64), (rng.standard_normal((B, T, D)),)),
    "Dropout": lambda rng: (Dropout(0.4, seed=rng), (rng.standard_normal((B, T, D)),)),
    "Dropout, evaluation": lambda rng: (Dropout(0.4, seed=rng).eval(), (rng.standard_normal((B, T, D)),)),
    "LayerNorm": lambda rng: (LayerNorm(D, **FLOAT64), (3 + 2 * rng.standard_normal((B, T, D)),)),
    "LayerNorm, large eps": lambda rng: (LayerNorm(D, eps=0.7, **FLOAT64), (rng.standard_normal((B, T, D)),)),
    "ReLU": lambda rng: (ReLU(), (rng.standard_normal((B, T, D)),)),
    "Softmax": lambda rng: (Softmax(), (2 * rng.standard_normal((B, H, T, S)),)),
    "Softmax, masked": lambda rng: (Softmax(), (2 * rng.standard_normal((B, H, T, S)), head_mask(rng))),
    "ScaledDotProductAttention": lambda rng: (
        ScaledDotProductAttention(seed=rng),
        (*(rng.standard_normal((B, H, *shape)) for shape in ((T, K), (S, K), (S, F))), source_mask()),
    ),
    "ScaledDotProductAttention, dropout": lambda rng: (
        ScaledDotProductAttention(0.3, seed=rng),
        (*(rng.standard_normal((B, H, *shape)) for shape in ((T, K), (S, K), (S, F))), head_mask(rng)),
    ),
    "MultiHeadAttention, self": lambda rng: (
        MultiHeadAttention(D, H, dropout=0.2, seed=rng, **FLOAT64),
        (*(rng.standard_normal((B, T, D)) for _ in range(3)), target_mask()),
    ),
    "MultiHeadAttention, cross": lambda rng: (
        MultiHeadAttention(D, H, d_key=D_KEY, d_value=D_VALUE, dropout=0.2, seed=rng, **FLOAT64),
        (*(rng.standard_normal((B, *shape)) for shape in ((T, D), (S, D_KEY), (S, D_VALUE))), source_mask()),
    ),
    "MultiHeadAttention, no bias": lambda rng: (
        MultiHeadAttention(D, H, bias=False, seed=rng, **FLOAT64),
        (*(rng.standard_normal((B, *shape)) for shape in ((T, D), (S, D), (S, D))), head_mask(rng)),
    ),
    "FeedForward": lambda rng: (
        FeedForward(D, F, dropout=0.3, seed=rng, **FLOAT64),
        (rng.standard_normal((B, T, D)),),
    ),
    "EncoderLayer, post": lambda rng: stack(EncoderLayer, rng, "post"),
    "EncoderLayer, pre": lambda rng: stack(EncoderLayer, rng, "pre"),
    "EncoderLayer, no bias": lambda rng: stack(EncoderLayer, rng, "pre", bias=False),
    "DecoderLayer, post": lambda rng: stack(DecoderLayer, rng, "post"),
    "DecoderLayer, pre": lambda rng: stack(DecoderLayer, rng, "pre"),
    "Encoder, post": lambda rng: stack(Encoder, rng, "post"),
    "Encoder, pre": lambda rng: stack(Encoder, rng, "pre"),
    "Encoder, post with final norm": lambda rng: stack(Encoder, rng, "post", n_layers=1, final_norm=True),
    "Decoder, post": lambda rng: stack(Decoder, rng, "post"),
    "Decoder, pre": lambda rng: stack(Decoder, rng, "pre", n_layers=1),
    "OutputProjection": lambda rng: (OutputProjection(D, V, seed=rng, **FLOAT64), (rng.standard_normal((B, T, D)),)),
    "OutputProjection, tied": lambda rng: (tied_output(rng), (rng.standard_normal((B, T, D)),)),
    "OutputProjection, no bias": lambda rng: (
        OutputProjection(D, V, bias=False, seed=rng, **FLOAT64),
        (rng.standard_normal((B, T, D)),),
    ),
}
