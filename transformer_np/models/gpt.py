"""GPT: the decoder alone, trained to guess the next token of any text. GPT-2's layout."""

from ..layers import Dropout, Embedding, EncoderLayer, LayerNorm, OutputProjection
from ..layers.checkpoint import checkpointed
from .decoder_only import DecoderOnly


class GPT(DecoderOnly):
    """x = dropout(E[ids] + P[positions]), N pre-norm layers with causal attention, a last norm, logits = x Eᵀ.

    Shapes: ids (B, T) integers, logits (B, T, V), E (V, D), P (max_len, D) learned. `logits[:, t]` predicts
    ids[:, t+1]: see DecoderOnly, also for masks and padding. Options:
    d_ff: 4 D by default. tie_embeddings: whether the output uses E too, or a matrix of its own; it has no bias.
    window: if set, a token looks no further back than that many tokens, its own included.
    activation: "gelu_tanh" is GPT-2's.
    checkpoint=True: keep less for backward, and compute each layer's forward once more there (see Checkpoint).
    Backward: the parts' backwards in reverse order; E gathers the gradients of both its uses. Returns None.
    Raises ValueError or IndexError for ids, lengths, masks and options that do not fit.
    Source: Radford et al. 2019, section 2.3. As there, no dropout inside the feed-forward network.
    """

    rotary = False

    def __init__(
        self,
        vocab_size,
        d_model=768,
        n_heads=12,
        n_layers=12,
        d_ff=None,
        dropout=0.1,
        max_len=1024,
        tie_embeddings=True,
        pad_id=None,
        seed=0,
        dtype="float32",
        *,
        window=None,
        activation="gelu_tanh",
        bias=True,
        eps=1e-5,
        checkpoint=False,
    ):
        config = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__(vocab_size, n_layers, max_len, pad_id, window, seed, dtype)
        self.config = config
        options = {"seed": self.rng, "dtype": dtype}
        self.embedding = Embedding(vocab_size, d_model, scaled=False, **options)
        self.positions = Embedding(max_len, d_model, scaled=False, **options)
        self.dropout = Dropout(dropout, **options)
        sizes = (d_model, n_heads, 4 * d_model if d_ff is None else d_ff, dropout)
        parts = {"feed_forward_dropout": 0.0, "eps": eps, "bias": bias}
        self.layers = [EncoderLayer(*sizes, "pre", activation, **parts, **options) for _ in range(n_layers)]
        if checkpoint:
            self.layers = checkpointed(self.layers)
        self.final_norm = LayerNorm(d_model, eps, **options)
        tied = self.embedding.weight if tie_embeddings else None
        self.output = OutputProjection(d_model, vocab_size, tied, bias=False, **options)
        self._draw_weights(n_layers)

    def embed(self, ids, positions):
        """ids (B, T), positions (1, T) or (B, T) -> x (B, T, D)."""
        positions = positions.repeat(len(ids) // len(positions), 0)  # (B, T)
        vectors = self.embedding(ids) + self.positions(positions)
        return self.dropout(vectors)

    def embed_backward(self, dx):
        """dx (B, T, D) -> None; adds dE and dP."""
        dvectors = self.dropout.backward(dx)
        self.embedding.backward(dvectors)
        self.positions.backward(dvectors)
