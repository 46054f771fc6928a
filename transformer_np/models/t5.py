"""T5: an encoder and a decoder that know positions by their distance only, without biases, means, or a scale."""

import math

from ..backend import array_module
from ..checks import check_ids, check_positive
from ..layers import Decoder, Dropout, Embedding, Encoder, OutputProjection, RelativePositionBias, RMSNorm
from ..layers.positions import check_length
from ..masks import check_pad_id, look_ahead_mask, real_tokens
from ..module import Module
from .files import save


class T5(Module):
    """Pre-norm encoder and decoder with RMSNorm; in each stack one learned bias by distance serves all layers.

    T5(...) is the first version: ReLU, and one matrix E for both embeddings and the output, whose input is scaled by
    1 / sqrt(D). Version 1.1 (also mT5, Flan-T5): activation="gelu_tanh", gated=True, tie_embeddings=False; the output
    then has a matrix of its own, and nothing is scaled.
    Scores are not divided by sqrt(K): the queries' matrix starts that much smaller. d_head=K need not be D / H.
    checkpoint=True: keep less for backward, and compute each layer's forward once more there (see Checkpoint).
    Shapes: src (B, S) and tgt (B, T) integer ids, logits (B, T, V). As the decoder's first token T5 takes `pad_id`
    itself, so tokens equal to `pad_id` are never looked at in the source, but may be in the target, unless a tgt_mask
    says otherwise; padding at its end is behind everything that counts. Their weights write with bos_id=0, eos_id=1.
    Backward: the parts' backwards in reverse order; the embedding's two or three uses add up. Returns (None, None).
    Raises ValueError or IndexError for ids, lengths, masks and options that do not fit.
    Source: Raffel et al. 2019, section 2.1; version 1.1: Shazeer 2020 and their repository.
    """

    def __init__(
        self,
        vocab_size,
        d_model=512,
        n_heads=8,
        n_encoder_layers=6,
        n_decoder_layers=6,
        d_ff=2048,
        d_head=64,
        dropout=0.1,
        max_len=None,
        n_buckets=32,
        max_distance=128,
        activation="relu",
        gated=False,
        tie_embeddings=True,
        pad_id=0,
        seed=0,
        dtype="float32",
        *,
        eps=1e-6,
        checkpoint=False,
    ):
        self.config = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__(seed, dtype)
        check_positive(self, vocab_size=vocab_size, max_len=1 if max_len is None else max_len)
        check_pad_id(self, pad_id, vocab_size)
        self.pad_id, self.d_model = pad_id, d_model
        options = {"seed": self.rng, "dtype": dtype}
        self.src_embedding = Embedding(vocab_size, d_model, scaled=False, **options)
        self.tgt_embedding = Embedding(vocab_size, d_model, scaled=False, **options)
        self.tgt_embedding.weight = self.src_embedding.weight

        def stack(kind, n_layers, bidirectional):
            position_bias = RelativePositionBias(n_heads, n_buckets, max_distance, bidirectional, **options)
            position_bias.max_len = max_len
            attention = {"d_head": d_head, "scale": 1.0}
            extras = {"position_bias": position_bias, "norm_layer": RMSNorm, "gated": gated, "attention": attention}
            extras |= {"eps": eps, "bias": False, "checkpoint": checkpoint, **options}
            return kind(n_layers, d_model, n_heads, d_ff, dropout, "pre", activation, **extras)

        self.src_dropout = Dropout(dropout, **options)
        self.encoder = stack(Encoder, n_encoder_layers, True)
        self.memory_dropout = Dropout(dropout, **options)
        self.tgt_dropout = Dropout(dropout, **options)
        self.decoder = stack(Decoder, n_decoder_layers, False)
        self.output_dropout = Dropout(dropout, **options)
        tied = self.src_embedding.weight if tie_embeddings else None
        self.output_scale = 1 / math.sqrt(d_model) if tie_embeddings else 1.0
        self.output = OutputProjection(d_model, vocab_size, tied, bias=False, **options)
        self._scale_first_weights(d_head)

    def _scale_first_weights(self, d_head):
        """Start as T5 does: embeddings of unit variance, and queries small enough that scores need no scale."""
        self.src_embedding.weight.data *= math.sqrt(self.d_model)
        for name, p in self.named_parameters():
            if name.endswith("w_q.weight"):
                p.data *= 1 / math.sqrt(d_head)

    def forward(self, src, tgt, src_mask=None, tgt_mask=None):
        """src (B, S), tgt (B, T) -> logits (B, T, V). src_mask (B, S) and tgt_mask (B, T) are True at real tokens."""
        check_ids(self, "src", src, self.src_embedding.vocab_size, ndim=2)
        check_ids(self, "tgt", tgt, self.tgt_embedding.vocab_size, ndim=2)
        if len(src) != len(tgt):
            raise ValueError(f"T5: src and tgt must have the same batch size, got {src.shape} and {tgt.shape}")
        check_length(self.encoder.position_bias, src.shape[1], 0)
        check_length(self.decoder.position_bias, tgt.shape[1], 0)
        src_mask, tgt_mask = self._masks(src, src_mask, tgt, tgt_mask)
        memory, src_mask = self.encode(src, src_mask)
        return self.output(self.decode(tgt, memory, src_mask, tgt_mask))

    def encode(self, src, src_mask=None):
        """src (B, S) -> memory (B, S, D), and src_mask (B, S), which `decode` wants too."""
        src_mask = real_tokens(self, "src_mask", src, src_mask, self.pad_id)
        x = self.src_dropout(self.src_embedding(src))  # (B, S, D)
        return self.memory_dropout(self.encoder(x, src_mask[:, None, None, :])), src_mask

    def decode(self, tgt, memory, src_mask, tgt_mask=None, cache=None):
        """tgt (B, T), memory (B, S, D), src_mask (B, S) -> what the output projection takes (B, T, D).

        With a KeyValueCache, tgt are the T tokens that follow those the cache has seen, all of them real; after the
        first ones memory may be None, since its keys and values are in the cache too.
        """
        n_before = 0 if cache is None else cache.length
        n_keys = n_before + tgt.shape[1]
        may_look = look_ahead_mask(n_keys, array_module(tgt))[:, :, n_before:]  # (1, 1, T, n_keys)
        if tgt_mask is not None:
            may_look = may_look & real_tokens(self, "tgt_mask", tgt, tgt_mask, self.pad_id)[:, None, None, :]
        x = self.tgt_dropout(self.tgt_embedding(tgt))  # (B, T, D)
        y = self.output_dropout(self.decoder(x, memory, may_look, src_mask[:, None, None, :], cache))
        if cache is not None:
            cache.length = n_keys
        scaled = y
        scaled *= self.output_scale
        return scaled

    def backward(self, dlogits):
        """dlogits (B, T, V) -> (None, None); adds every parameter's gradient."""
        dscaled = self.output.backward(dlogits)
        dy = dscaled
        dy *= self.output_scale
        dx, dmemory = self.decoder.backward(self.output_dropout.backward(dy))
        self.tgt_embedding.backward(self.tgt_dropout.backward(dx))
        dx = self.encoder.backward(self.memory_dropout.backward(dmemory))
        self.src_embedding.backward(self.src_dropout.backward(dx))
        return None, None

    def save(self, path):
        """Write weights and configuration to one safetensors file; `tnp.load(path)` reads it back."""
        save(self, path)

    def _masks(self, src, src_mask, tgt, tgt_mask):
        """Check both masks before any part runs; None stays None for the target."""
        src_mask = real_tokens(self, "src_mask", src, src_mask, self.pad_id)
        return src_mask, tgt_mask if tgt_mask is None else real_tokens(self, "tgt_mask", tgt, tgt_mask, self.pad_id)
