"""Llama: the decoder alone, with the parts that replaced the first ones: RMSNorm, rotary positions, gates."""

from ..layers import Embedding, EncoderLayer, OutputProjection, RMSNorm
from ..layers.checkpoint import checkpointed
from .decoder_only import DecoderOnly


class Llama(DecoderOnly):
    """x = E[ids], N pre-norm layers with causal attention, a last norm, logits = x Wᵀ; no biases anywhere.

    Where GPT has layer norms, learned positions and a plain feed-forward network, here are RMSNorm, rotary positions
    within the attention, and SwiGLU.
    Shapes: ids (B, T) integers, logits (B, T, V), E and W (V, D). `logits[:, t]` predicts ids[:, t+1]: see DecoderOnly,
    also for masks and padding. Options:
    n_kv_heads: fewer heads of keys and values than n_heads (grouped queries), for a smaller key/value cache.
    d_ff: two thirds of 4 D by default, since the gate adds a third matrix.
    max_len: a limit to the length; None sets none, for rotary positions go on for ever.
    tie_embeddings: whether W is E. rotary_base, rotary_scaling, layout: see RotaryPositions. d_head: where it is not D
    / H.
    window: if set, a token looks no further back than that many tokens, its own included (Mistral).
    checkpoint=True: keep less for backward, and compute each layer's forward once more there (see Checkpoint).
    Backward: the parts' backwards in reverse order. Returns None.
    Raises ValueError or IndexError for ids, lengths, masks and options that do not fit.
    Source: Touvron et al. 2023, section 2.2; grouped queries: Llama 2, section 2; window: Jiang et al. 2023, section 2.
    """

    rotary = True

    def __init__(
        self,
        vocab_size,
        d_model=768,
        n_heads=12,
        n_layers=12,
        d_ff=None,
        n_kv_heads=None,
        dropout=0.0,
        max_len=None,
        tie_embeddings=False,
        pad_id=None,
        seed=0,
        dtype="float32",
        *,
        window=None,
        d_head=None,
        rotary_base=10000.0,
        rotary_scaling=None,
        layout="halves",
        activation="silu",
        eps=1e-6,
        checkpoint=False,
    ):
        config = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__(vocab_size, n_layers, max_len, pad_id, window, seed, dtype)
        self.config = config
        options = {"seed": self.rng, "dtype": dtype}
        self.embedding = Embedding(vocab_size, d_model, scaled=False, **options)
        attention = {"n_kv_heads": n_kv_heads, "d_head": d_head}
        attention |= {"rotary": layout, "rotary_base": rotary_base, "rotary_scaling": rotary_scaling}
        parts = {"norm_layer": RMSNorm, "gated": True, "attention": attention, "eps": eps, "bias": False}
        sizes = (d_model, n_heads, 8 * d_model // 3 if d_ff is None else d_ff, dropout)
        self.layers = [EncoderLayer(*sizes, "pre", activation, **parts, **options) for _ in range(n_layers)]
        if checkpoint:
            self.layers = checkpointed(self.layers)
        self.final_norm = RMSNorm(d_model, eps, **options)
        tied = self.embedding.weight if tie_embeddings else None
        self.output = OutputProjection(d_model, vocab_size, tied, bias=False, **options)
        self._draw_weights(n_layers)

    def embed(self, ids, positions):
        """ids (B, T) -> x (B, T, D); positions have their say in the attention."""
        return self.embedding(ids)

    def embed_backward(self, dx):
        """dx (B, T, D) -> None; adds dE."""
        self.embedding.backward(dx)
