"""The decoder: like the encoder, with a third sub-layer that looks at the encoder's output."""

from ..checks import check_choice, check_floats, check_mask
from ..module import Module
from .attention import check_bias
from .dropout import Dropout
from .encoder import Stack
from .feed_forward import FeedForward, GatedFeedForward
from .layer_norm import LayerNorm
from .multi_head_attention import MultiHeadAttention


class DecoderLayer(Module):
    """Three sub-layers: self-attention, cross-attention over `memory` (the encoder's output), and feed-forward.

    Each has dropout, a residual path and a layer norm, after the sum (norm="post", the paper) or before the sub-layer
    ("pre"). In cross-attention the queries come from the target; keys and values are the memory, which is not normed
    here.
    Shapes: x (B, T, D), memory (B, S, D), mask broadcastable to (B, H, T, T), memory_mask to (B, H, T, S), y (B, T, D).
    norm_layer, gated, attention (of both attentions) and the `bias` (B, H, T, T) that forward adds to the scores of
    self-attention: see EncoderLayer.
    cache: keys and values of earlier tokens (see MultiHeadAttention); those of the memory are in `cache.memory`, from
    where memory=None takes them.
    Backward returns (dx, dmemory): dmemory is the sum of the gradients of cross-attention's keys and values; where
    there was a bias, dbias comes third.
    Source: section 3.1 and figure 1, right. Derivation: docs/derivations/residual.md.
    """

    def __init__(
        self,
        d_model,
        n_heads,
        d_ff,
        dropout=0.1,
        norm="post",
        activation="relu",
        *,
        norm_layer=LayerNorm,
        gated=False,
        attention=None,
        eps=1e-5,
        bias=True,
        seed=None,
        dtype="float32",
    ):
        super().__init__(seed, dtype)
        check_choice(self, "norm", norm, ("post", "pre"))
        self.norm, self.d_model, self.n_heads = norm, d_model, n_heads
        options = {"seed": self.rng, "dtype": dtype}
        with_bias = {"dropout": dropout, "bias": bias, **options}
        self.self_attention = MultiHeadAttention(d_model, n_heads, **(attention or {}), **with_bias)
        self.dropout1 = Dropout(dropout, **options)
        self.norm1 = norm_layer(d_model, eps, **options)
        self.cross_attention = MultiHeadAttention(d_model, n_heads, **(attention or {}), **with_bias)
        self.dropout2 = Dropout(dropout, **options)
        self.norm2 = norm_layer(d_model, eps, **options)
        self.feed_forward = (GatedFeedForward if gated else FeedForward)(d_model, d_ff, activation, **with_bias)
        self.dropout3 = Dropout(dropout, **options)
        self.norm3 = norm_layer(d_model, eps, **options)

    def forward(self, x, memory, mask=None, memory_mask=None, bias=None, cache=None):
        """x (B, T, D), memory (B, S, D) -> y (B, T, D)."""
        # All is checked before any part runs: a part that has run keeps new activations, and others still old ones.
        check_floats(self, "x", x, shape=(None, None, self.d_model), dtype=self.dtype)
        memory_cache = None if cache is None else cache.memory
        shape = (len(x), self.n_heads, x.shape[1])
        n_keys = x.shape[1] if cache is None else cache.n_keys(x.shape[1])
        if mask is not None:
            check_mask(self, mask, (*shape, n_keys))
        if memory is not None or cache is None:
            check_floats(self, "memory", memory, shape=(len(x), None, self.d_model), dtype=self.dtype)
            if memory_mask is not None:
                check_mask(self, memory_mask, (*shape, memory.shape[1]), "memory_mask")
        if bias is not None:
            check_bias(self, bias, (*shape, n_keys), self.dtype)
        if self.norm == "post":
            sum1 = x + self.dropout1(self.self_attention(x, x, x, mask, bias, cache=cache))
            x1 = self.norm1(sum1)
            sum2 = x1 + self.dropout2(self.cross_attention(x1, memory, memory, memory_mask, cache=memory_cache))
            x2 = self.norm2(sum2)
            sum3 = x2 + self.dropout3(self.feed_forward(x2))
            return self.norm3(sum3)
        n1 = self.norm1(x)
        x1 = x + self.dropout1(self.self_attention(n1, n1, n1, mask, bias, cache=cache))
        n2 = self.norm2(x1)
        x2 = x1 + self.dropout2(self.cross_attention(n2, memory, memory, memory_mask, cache=memory_cache))
        return x2 + self.dropout3(self.feed_forward(self.norm3(x2)))

    def backward(self, dy):
        """dy (B, T, D) -> dx (B, T, D), dmemory (B, S, D); with a bias, dbias too."""
        if self.norm == "post":
            dsum3 = self.norm3.backward(dy)
            dx2 = dsum3 + self.feed_forward.backward(self.dropout3.backward(dsum3))
            dsum2 = self.norm2.backward(dx2)
            dquery, dkey, dvalue = self.cross_attention.backward(self.dropout2.backward(dsum2))
            dx1, dmemory = dsum2 + dquery, dkey + dvalue
            dsum1 = self.norm1.backward(dx1)
            dquery, dkey, dvalue, *dbias = self.self_attention.backward(self.dropout1.backward(dsum1))
            dx = dsum1 + dquery + dkey + dvalue
        else:
            dx2 = dy + self.norm3.backward(self.feed_forward.backward(self.dropout3.backward(dy)))
            dn2, dkey, dvalue = self.cross_attention.backward(self.dropout2.backward(dx2))
            dx1, dmemory = dx2 + self.norm2.backward(dn2), dkey + dvalue
            dquery, dkey, dvalue, *dbias = self.self_attention.backward(self.dropout1.backward(dx1))
            dn1 = dquery + dkey + dvalue
            dx = dx1 + self.norm1.backward(dn1)
        return dx, dmemory, *dbias


class Decoder(Stack):
    """N decoder layers one after another.

    Shapes: x (B, T, D), memory (B, S, D), mask broadcastable to (B, H, T, T), memory_mask to (B, H, T, S), y (B, T, D).
    Arguments: see Stack, whose position bias is that of self-attention, and DecoderLayer for gated, attention and bias.
    Backward returns (dx, dmemory); every layer looks at the memory, so their gradients add up.
    Source: section 3.1 and figure 1, right.
    """

    layer_class = DecoderLayer

    def forward(self, x, memory, mask=None, memory_mask=None, cache=None):
        """x (B, T, D), memory (B, S, D) -> y (B, T, D)."""
        bias = None
        if self.position_bias is not None:
            check_floats(self, "x", x, min_ndim=3)
            n_before = 0 if cache is None else cache.length
            bias = self.position_bias(x.shape[1], n_before + x.shape[1], n_before)  # (1, H, T, n_before + T)
        for layer in self.layers:
            x = layer(x, memory, mask, memory_mask, bias, cache)
        return x if self.final_norm is None else self.final_norm(x)

    def backward(self, dy):
        """dy (B, T, D) -> dx (B, T, D), dmemory (B, S, D)."""
        if self.final_norm is not None:
            dy = self.final_norm.backward(dy)
        dmemory = dbias = 0
        for layer in reversed(self.layers):
            dy, dlayer_memory, *dlayer_bias = layer.backward(dy)
            dmemory = dlayer_memory + dmemory
            dbias = sum(dlayer_bias, dbias)
        if self.position_bias is not None:
            self.position_bias.backward(dbias)
        return dy, dmemory
