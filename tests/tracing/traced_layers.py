"""Every layer and every model, small, in float64, with inputs: what the proof of a trace's gradients runs over."""

import numpy as np
from layer_cases import CASES, head_mask, source_mask

import transformer_np as tnp
from transformer_np import layers

B, T, S, D, H, F, V = 2, 4, 3, 6, 2, 8, 7
FLOAT64 = {"dtype": "float64"}
REAL = np.arange(T) < np.array([4, 2])[:, None]  # (B, T): sentences of 4 tokens and of 2


def case(make, *inputs):
    """Return a build function: the layer, and its inputs, drawn where a shape is given."""

    def build(rng):
        drawn = [rng.standard_normal(x) if isinstance(x, tuple) else x for x in inputs]
        return make(seed=rng, **FLOAT64), tuple(drawn)

    return build


def part(kind, *arguments, **options):
    """A layer class with its arguments, still without seed and dtype."""
    return lambda **rest: kind(*arguments, **options, **rest)


X, XS = (B, T, D), (B, S, D)
IMAGE = (B, 1, 4, 2)
LAYERS = dict(CASES) | {
    "Sigmoid": case(layers.Sigmoid, X),
    "Tanh": case(layers.Tanh, X),
    "SiLU": case(layers.SiLU, X),
    "GELU": case(layers.GELU, X),
    "GELU, tanh": case(part(layers.GELU, "tanh"), X),
    "RMSNorm": case(part(layers.RMSNorm, D), X),
    "GatedFeedForward": case(part(layers.GatedFeedForward, D, F, "gelu", dropout=0.2, bias=True), X),
    "RotaryPositions": case(part(layers.RotaryPositions, D), (B, H, T, D)),
    "RotaryPositions, halves": case(part(layers.RotaryPositions, D, "halves"), (B, H, T, D)),
    "RelativePositionBias": case(part(layers.RelativePositionBias, H), T, S),
    "ALiBi": case(part(layers.ALiBi, H), T, S),
    "PatchEmbedding": case(part(layers.PatchEmbedding, 2, 1, D), IMAGE),
    "Pooler": case(part(layers.Pooler, D), X),
    "RNN": case(part(layers.RNN, D, 5), X, (B, 5)),
    "RNN, relu, masked": case(part(layers.RNN, D, 5, "relu"), X, (B, 5), REAL),
    "LSTM": case(part(layers.LSTM, D, 5), X, (B, 5), (B, 5)),
    "LSTM, masked, reverse": case(part(layers.LSTM, D, 5, reverse=True), X, (B, 5), (B, 5), REAL),
    "GRU": case(part(layers.GRU, D, 5), X, (B, 5)),
    "GRU, masked": case(part(layers.GRU, D, 5), X, (B, 5), REAL),
    "AdditiveAttention": case(part(layers.AdditiveAttention, D, D, 5), X, XS, (B, S, 9)),
    "Conv1D": case(part(layers.Conv1D, D, 5, 3), X),
    "Conv1D, same, masked": case(part(layers.Conv1D, D, 5, 3, "same", dilation=2), X, REAL),
    "BlockwiseAttention": lambda rng: (
        layers.BlockwiseAttention(block=3, seed=rng),
        (*(rng.standard_normal((4, 2, *shape)) for shape in ((7, 3), (5, 3), (5, 8))), head_mask(rng)),
    ),
    "BlockwiseAttention, dropout": lambda rng: (
        layers.BlockwiseAttention(0.3, block=2, seed=rng),
        (*(rng.standard_normal((4, 2, *shape)) for shape in ((7, 3), (5, 3), (5, 8))), source_mask()),
    ),
    "MultiHeadAttention, blockwise": case(
        part(layers.MultiHeadAttention, D, H, attention="blockwise", block=3, causal=True), X, X, X
    ),
    "MultiHeadAttention, rotary, grouped, bias": case(
        part(layers.MultiHeadAttention, D, H, 1, d_head=4, dropout=0.2, rotary="halves"),
        *(X, X, X, np.tri(T, dtype=bool), (1, H, T, T)),
    ),
    "Checkpoint": lambda rng: (
        layers.Checkpoint(layers.EncoderLayer(D, H, F, seed=rng, **FLOAT64)),
        (rng.standard_normal(X),),
    ),
    "Encoder, checkpoint": case(part(layers.Encoder, 2, D, H, F, norm="pre", checkpoint=True), X),
    "Decoder, position bias": lambda rng: (
        layers.Decoder(
            *(2, D, H, F),
            norm="pre",
            position_bias=layers.RelativePositionBias(H, seed=rng, **FLOAT64),
            seed=rng,
            **FLOAT64,
        ),
        (rng.standard_normal(X), rng.standard_normal(XS), np.tri(T, dtype=bool)),
    ),
}


def ids(rng, length, pad=True):
    """(B, length) ids, the second sentence with two of padding."""
    out = rng.integers(1, V, (B, length))
    out[1, -1:] = 0 if pad else 1
    return out


def model(make, *lengths, **options):
    """A build function for a model of ids."""
    return lambda rng: (make(seed=0, **options, **FLOAT64), tuple(ids(rng, n) for n in lengths))


SMALL = {"d_model": D, "n_heads": H, "d_ff": F}
STACKS = {"n_encoder_layers": 1, "n_decoder_layers": 1}
MODELS = {
    "Transformer": model(part(tnp.Transformer, V, V + 2, **SMALL, **STACKS), S, T),
    "Transformer, pre, tied, learned": model(
        part(tnp.Transformer, V, V, **SMALL, **STACKS, norm="pre", positions="learned", tie_embeddings=True), S, T
    ),
    "Transformer, checkpoint": model(part(tnp.Transformer, V, V + 2, **SMALL, **STACKS, checkpoint=True), S, T),
    "GPT": model(part(tnp.GPT, V, D, H, 2, F, max_len=8), T),
    "Llama": model(part(tnp.Llama, V, 8, 4, 1, F, 2, max_len=8), T),
    "BERT": model(part(tnp.BERT, V, D, H, 1, F, max_len=8), T),
    "T5": model(part(tnp.T5, V, D, H, 1, 1, F, 4), S, T),
    "ViT": lambda rng: (tnp.ViT((4, 2), 2, 1, 3, D, H, 1, F, **FLOAT64), (rng.standard_normal(IMAGE),)),
    "Seq2SeqRNN, lstm": model(part(tnp.Seq2SeqRNN, V, V, D, 1, "lstm"), S, T),
    "Seq2SeqRNN, gru, two directions": model(part(tnp.Seq2SeqRNN, V, V, D, 2, "gru", bidirectional=True), S, T),
    "ConvEncoder": model(part(tnp.ConvEncoder, V, None, D, 2, max_len=8), T),
}
