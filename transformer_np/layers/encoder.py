"""The encoder: a stack of layers, each self-attention and a feed-forward network with a residual path around both."""

from ..checks import check_choice, check_floats, check_mask, check_positive
from ..module import Module
from .attention import check_bias
from .checkpoint import checkpointed
from .dropout import Dropout
from .feed_forward import FeedForward, GatedFeedForward
from .layer_norm import LayerNorm
from .multi_head_attention import MultiHeadAttention


class EncoderLayer(Module):
    """Two sub-layers, self-attention and feed-forward, each with dropout, a residual path and a layer norm.

    norm="post" (the paper):  x1 = norm1(x + attention(x));  y = norm2(x1 + feed_forward(x1))
    norm="pre":               x1 = x + attention(norm1(x));  y = x1 + feed_forward(norm2(x1))
    Shapes: x (B, S, D), mask boolean and broadcastable to (B, H, S, S), y (B, S, D).
    Beyond the paper: norm_layer=RMSNorm, gated=True for a GatedFeedForward, attention={...} with further arguments of
    MultiHeadAttention, such as {"d_head": 64}, and a `bias` (B, H, S, S), each axis of full size or 1, that forward
    adds to the scores. `positions` and `cache` are MultiHeadAttention's too; with a causal mask this is the layer of a
    decoder-only model. feed_forward_dropout: the dropout within the feed-forward network, if not the same.
    Backward: a sum passes its gradient to both terms, so the gradient of each residual path is added to the
    sub-layer's; and self-attention uses its input as query, key and value, so the three gradients add up. Where there
    was a bias, backward returns (dx, dbias).
    Source: section 3.1; pre-norm: Xiong et al. 2020. Derivation: docs/derivations/residual.md.
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
        feed_forward_dropout=None,
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
        inner = with_bias if feed_forward_dropout is None else {**with_bias, "dropout": feed_forward_dropout}
        self.feed_forward = (GatedFeedForward if gated else FeedForward)(d_model, d_ff, activation, **inner)
        self.dropout2 = Dropout(dropout, **options)
        self.norm2 = norm_layer(d_model, eps, **options)

    def forward(self, x, mask=None, bias=None, positions=None, cache=None):
        """x (B, S, D) -> y (B, S, D)."""
        # All is checked before any part runs: a part that has run keeps new activations, and others still old ones.
        check_floats(self, "x", x, shape=(None, None, self.d_model), dtype=self.dtype)
        n_keys = x.shape[1] if cache is None else cache.n_keys(x.shape[1])
        if mask is not None:
            check_mask(self, mask, (len(x), self.n_heads, x.shape[1], n_keys))
        if bias is not None:
            check_bias(self, bias, (len(x), self.n_heads, x.shape[1], n_keys), self.dtype)
        if self.norm == "post":
            sum1 = x + self.dropout1(self.self_attention(x, x, x, mask, bias, positions, cache))
            x1 = self.norm1(sum1)
            sum2 = x1 + self.dropout2(self.feed_forward(x1))
            return self.norm2(sum2)
        n1 = self.norm1(x)
        x1 = x + self.dropout1(self.self_attention(n1, n1, n1, mask, bias, positions, cache))
        return x1 + self.dropout2(self.feed_forward(self.norm2(x1)))

    def backward(self, dy):
        """dy (B, S, D) -> dx (B, S, D); with a bias, dbias too."""
        if self.norm == "post":
            dsum2 = self.norm2.backward(dy)
            dx1 = dsum2 + self.feed_forward.backward(self.dropout2.backward(dsum2))
            dsum1 = self.norm1.backward(dx1)
            dquery, dkey, dvalue, *dbias = self.self_attention.backward(self.dropout1.backward(dsum1))
            dx = dsum1 + dquery + dkey + dvalue
        else:
            dx1 = dy + self.norm2.backward(self.feed_forward.backward(self.dropout2.backward(dy)))
            dquery, dkey, dvalue, *dbias = self.self_attention.backward(self.dropout1.backward(dx1))
            dn1 = dquery + dkey + dvalue
            dx = dx1 + self.norm1.backward(dn1)
        return (dx, *dbias) if dbias else dx


class Stack(Module):
    """What Encoder and Decoder have in common: N layers, and with norm="pre" a final norm, as nothing bounds the sum.

    `final_norm` overrides the default (True for "pre", False for "post"). position_bias: a RelativePositionBias whose
    bias every layer adds to its scores; it gets the sum of their gradients. checkpoint=True: less memory for one more
    forward of each layer in backward (see Checkpoint). `layer_options` are further arguments of the layers.
    """

    layer_class = None

    def __init__(
        self,
        n_layers,
        d_model,
        n_heads,
        d_ff,
        dropout=0.1,
        norm="post",
        activation="relu",
        *,
        final_norm=None,
        position_bias=None,
        checkpoint=False,
        norm_layer=LayerNorm,
        eps=1e-5,
        seed=None,
        dtype="float32",
        **layer_options,
    ):
        super().__init__(seed, dtype)
        check_positive(self, n_layers=n_layers)
        self.position_bias = position_bias
        sizes = (d_model, n_heads, d_ff, dropout, norm, activation)
        layer_options |= {"norm_layer": norm_layer, "eps": eps, "seed": self.rng, "dtype": dtype}
        self.layers = [self.layer_class(*sizes, **layer_options) for _ in range(n_layers)]
        if checkpoint:
            self.layers = checkpointed(self.layers)
        has_final_norm = norm == "pre" if final_norm is None else final_norm
        self.final_norm = norm_layer(d_model, eps, dtype=dtype) if has_final_norm else None


class Encoder(Stack):
    """N encoder layers one after another.

    Shapes: x (B, S, D), mask boolean and broadcastable to (B, H, S, S), y (B, S, D). Arguments: see Stack, and
    EncoderLayer for gated, attention, feed_forward_dropout and bias.
    Source: section 3.1 and figure 1, left.
    """

    layer_class = EncoderLayer

    def forward(self, x, mask=None):
        """x (B, S, D) -> y (B, S, D)."""
        bias = None
        if self.position_bias is not None:
            check_floats(self, "x", x, min_ndim=3)
            bias = self.position_bias(x.shape[1], x.shape[1])  # (1, H, S, S)
        for layer in self.layers:
            x = layer(x, mask, bias)
        return x if self.final_norm is None else self.final_norm(x)

    def backward(self, dy):
        """dy (B, S, D) -> dx (B, S, D)."""
        if self.final_norm is not None:
            dy = self.final_norm.backward(dy)
        dbias = 0
        for layer in reversed(self.layers):
            dy = layer.backward(dy)
            if self.position_bias is not None:
                dy, dlayer_bias = dy
                dbias = dlayer_bias + dbias
        if self.position_bias is not None:
            self.position_bias.backward(dbias)
        return dy
