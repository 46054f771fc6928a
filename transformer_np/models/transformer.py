"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), assembled from its layers: figure 1."""

import numpy as np

from ..backend import array_module
from ..checks import check_choice, check_ids, check_positive
from ..layers import Decoder, Dropout, Embedding, Encoder, LearnedPositions, OutputProjection, SinusoidalPositions
from ..layers.positions import check_length
from ..masks import look_ahead_mask, real_tokens
from ..module import Module
from .files import save

POSITIONS = {"sinusoidal": SinusoidalPositions, "learned": LearnedPositions}


class Transformer(Module):
    """Encoder and decoder: from source and target ids to logits for every next target token.

    Shapes: src (B, S) and tgt (B, T) integer ids, logits (B, T, V) with V = tgt_vocab_size. `logits[:, t]` sees all
    of the source and tgt[:, 0..t], so it predicts tgt[:, t+1]. Tokens equal to `pad_id` are never looked at, nor is
    the future. Options:
    norm: "post" (the paper) or "pre". positions: "sinusoidal" or "learned".
    tie_embeddings: False, "target" (target embedding and output share one matrix), or True (the source embedding too,
    as in section 3.4; both sides then have one vocabulary).
    final_norm: a layer norm after each stack; by default only with norm="pre".
    position_layout, first_position: `layout` and `first` of SinusoidalPositions, for weights trained elsewhere.
    checkpoint=True: keep less for backward, and compute each layer's forward once more there (see Checkpoint).
    Backward: the parts' backwards in reverse order; the gradient reaches the encoder through `memory`, its output, to
    which every decoder layer adds. Returns (None, None): ids have no gradient.
    Raises ValueError or IndexError for ids, lengths, masks and options that do not fit.
    Source: section 3, figure 1. Derivation: docs/derivations/transformer.md.
    """

    def __init__(
        self,
        src_vocab_size,
        tgt_vocab_size,
        d_model=512,
        n_heads=8,
        n_encoder_layers=6,
        n_decoder_layers=6,
        d_ff=2048,
        dropout=0.1,
        max_len=512,
        norm="post",
        positions="sinusoidal",
        tie_embeddings=False,
        pad_id=0,
        seed=0,
        dtype="float32",
        *,
        activation="relu",
        final_norm=None,
        bias=True,
        eps=1e-5,
        position_layout="interleaved",
        first_position=0,
        checkpoint=False,
    ):
        self.config = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__(seed, dtype)
        check_positive(self, src_vocab_size=src_vocab_size, tgt_vocab_size=tgt_vocab_size)
        check_choice(self, "positions", positions, POSITIONS)
        check_choice(self, "tie_embeddings", tie_embeddings, (False, True, "target"))
        if isinstance(tie_embeddings, int):
            tie_embeddings = bool(tie_embeddings)
        if not isinstance(pad_id, (int, np.integer)) or not 0 <= pad_id < min(src_vocab_size, tgt_vocab_size):
            raise ValueError(f"Transformer: pad_id must be an id of both vocabularies, got {pad_id!r}")
        if tie_embeddings is True and src_vocab_size != tgt_vocab_size:
            raise ValueError(
                f"Transformer: tie_embeddings=True needs one vocabulary, got {src_vocab_size} source and "
                f'{tgt_vocab_size} target tokens; tie_embeddings="target" ties the target embedding and the output only'
            )
        self.pad_id = pad_id
        options = {"seed": self.rng, "dtype": dtype}
        stack = {"final_norm": final_norm, "eps": eps, "bias": bias, "checkpoint": checkpoint, **options}
        place = {"layout": position_layout, "first": first_position} if positions == "sinusoidal" else {}

        self.src_embedding = Embedding(src_vocab_size, d_model, **options)
        self.src_positions = POSITIONS[positions](d_model, max_len, **place, **options)
        self.src_dropout = Dropout(dropout, **options)
        self.encoder = Encoder(n_encoder_layers, d_model, n_heads, d_ff, dropout, norm, activation, **stack)

        self.tgt_embedding = Embedding(tgt_vocab_size, d_model, **options)
        self.tgt_positions = POSITIONS[positions](d_model, max_len, **place, **options)
        self.tgt_dropout = Dropout(dropout, **options)
        self.decoder = Decoder(n_decoder_layers, d_model, n_heads, d_ff, dropout, norm, activation, **stack)

        if tie_embeddings is True:
            self.tgt_embedding.weight = self.src_embedding.weight
        tied = self.tgt_embedding.weight if tie_embeddings else None
        self.output = OutputProjection(d_model, tgt_vocab_size, tied, bias, **options)

    def forward(self, src, tgt, src_mask=None, tgt_mask=None):
        """src (B, S), tgt (B, T) -> logits (B, T, V).

        `src_mask` (B, S) and `tgt_mask` (B, T) are True at real tokens; by default those that are not `pad_id`.
        """
        check_ids(self, "src", src, self.src_embedding.vocab_size, ndim=2)
        check_ids(self, "tgt", tgt, self.tgt_embedding.vocab_size, ndim=2)
        if len(src) != len(tgt):
            raise ValueError(f"Transformer: src and tgt must have the same batch size, got {src.shape} and {tgt.shape}")
        check_length(self.src_positions, src.shape[1], 0)
        check_length(self.tgt_positions, tgt.shape[1], 0)
        src_mask = real_tokens(self, "src_mask", src, src_mask, self.pad_id)
        tgt_mask = real_tokens(self, "tgt_mask", tgt, tgt_mask, self.pad_id)
        # All is checked by now: an error after the encoder has run would leave it with other activations than the rest.
        memory, src_mask = self.encode(src, src_mask)
        return self.output(self.decode(tgt, memory, src_mask, tgt_mask))

    def encode(self, src, src_mask=None):
        """src (B, S) -> memory (B, S, D), and src_mask (B, S), which `decode` wants too."""
        src_mask = real_tokens(self, "src_mask", src, src_mask, self.pad_id)
        x = self.src_dropout(self.src_positions(self.src_embedding(src)))  # (B, S, D)
        return self.encoder(x, src_mask[:, None, None, :]), src_mask

    def decode(self, tgt, memory, src_mask, tgt_mask=None, cache=None):
        """tgt (B, T), memory (B, S, D), src_mask (B, S) -> the decoder's output (B, T, D).

        With a KeyValueCache, tgt are the T tokens that follow those the cache has seen, all of them real; after the
        first ones memory may be None, since its keys and values are in the cache too.
        """
        n_before = 0 if cache is None else cache.length
        n_keys = n_before + tgt.shape[1]
        may_look = look_ahead_mask(n_keys, array_module(tgt))[:, :, n_before:]  # (1, 1, T, n_keys)
        if cache is None:
            may_look = may_look & real_tokens(self, "tgt_mask", tgt, tgt_mask, self.pad_id)[:, None, None, :]
        x = self.tgt_dropout(self.tgt_positions(self.tgt_embedding(tgt), n_before))  # (B, T, D)
        x = self.decoder(x, memory, may_look, src_mask[:, None, None, :], cache)
        if cache is not None:
            cache.length = n_keys
        return x

    def backward(self, dlogits):
        """dlogits (B, T, V) -> (None, None); adds every parameter's gradient."""
        dx, dmemory = self.decoder.backward(self.output.backward(dlogits))
        self.tgt_embedding.backward(self.tgt_positions.backward(self.tgt_dropout.backward(dx)))
        dx = self.encoder.backward(dmemory)
        self.src_embedding.backward(self.src_positions.backward(self.src_dropout.backward(dx)))
        return None, None

    def save(self, path):
        """Write weights and configuration to one safetensors file; `tnp.load(path)` reads it back."""
        save(self, path)
