"""The encoder: a stack of layers, each self-attention and a feed-forward network with a residual path around both."""

from ..checks import check_choice, check_floats, check_mask, check_positive
from ..module import Module
from .dropout import Dropout
from .feed_forward import FeedForward
from .layer_norm import LayerNorm
from .multi_head_attention import MultiHeadAttention


class EncoderLayer(Module):
    """Two sub-layers, self-attention and feed-forward, each with dropout, a residual path and a layer norm.

    norm="post" (the paper):  x = norm1(x + attention(x));  y = norm2(x + feed_forward(x))
    norm="pre":               x = x + attention(norm1(x));  y = x + feed_forward(norm2(x))
    Shapes: x (B, S, D), mask boolean and broadcastable to (B, H, S, S), y (B, S, D).
    Backward: a sum passes its gradient to both terms, so the gradient of each residual path is added to the
    sub-layer's; and self-attention uses its input as query, key and value, so the three gradients add up.
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
        eps=1e-5,
        bias=True,
        seed=None,
        dtype="float32",
    ):
        super().__init__(seed, dtype)
        check_choice(self, "norm", norm, ("post", "pre"))
        self.norm, self.d_model, self.n_heads = norm, d_model, n_heads
        options = {"seed": self.rng, "dtype": dtype}
        self.self_attention = MultiHeadAttention(d_model, n_heads, dropout=dropout, bias=bias, **options)
        self.dropout1 = Dropout(dropout, **options)
        self.norm1 = LayerNorm(d_model, eps, **options)
        self.feed_forward = FeedForward(d_model, d_ff, activation, dropout=dropout, bias=bias, **options)
        self.dropout2 = Dropout(dropout, **options)
        self.norm2 = LayerNorm(d_model, eps, **options)

    def forward(self, x, mask=None):
        """x (B, S, D) -> y (B, S, D)."""
        # All is checked before any part runs: a part that has run keeps new activations, and others still old ones.
        check_floats(self, "x", x, shape=(None, None, self.d_model), dtype=self.dtype)
        if mask is not None:
            check_mask(self, mask, (len(x), self.n_heads, x.shape[1], x.shape[1]))
        if self.norm == "post":
            x = self.norm1(x + self.dropout1(self.self_attention(x, x, x, mask)))
            return self.norm2(x + self.dropout2(self.feed_forward(x)))
        n = self.norm1(x)
        x = x + self.dropout1(self.self_attention(n, n, n, mask))
        return x + self.dropout2(self.feed_forward(self.norm2(x)))

    def backward(self, dy):
        """dy (B, S, D) -> dx (B, S, D)."""
        if self.norm == "post":
            dy = self.norm2.backward(dy)
            dx = dy + self.feed_forward.backward(self.dropout2.backward(dy))
            dx = self.norm1.backward(dx)
            dq, dk, dv = self.self_attention.backward(self.dropout1.backward(dx))
            return dx + dq + dk + dv
        dx = dy + self.norm2.backward(self.feed_forward.backward(self.dropout2.backward(dy)))
        dq, dk, dv = self.self_attention.backward(self.dropout1.backward(dx))
        return dx + self.norm1.backward(dq + dk + dv)


class Encoder(Module):
    """N encoder layers one after another; with norm="pre" a final layer norm, since nothing else bounds the sum.

    Shapes: x (B, S, D), mask boolean and broadcastable to (B, H, S, S), y (B, S, D). `final_norm` overrides the default
    (True for "pre", False for "post"). Source: section 3.1 and figure 1, left.
    """

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
        eps=1e-5,
        bias=True,
        seed=None,
        dtype="float32",
    ):
        super().__init__(seed, dtype)
        check_positive(self, n_layers=n_layers)
        options = {"eps": eps, "bias": bias, "seed": self.rng, "dtype": dtype}
        self.layers = [
            EncoderLayer(d_model, n_heads, d_ff, dropout, norm, activation, **options) for _ in range(n_layers)
        ]
        has_final_norm = norm == "pre" if final_norm is None else final_norm
        self.final_norm = LayerNorm(d_model, eps, dtype=dtype) if has_final_norm else None

    def forward(self, x, mask=None):
        """x (B, S, D) -> y (B, S, D)."""
        for layer in self.layers:
            x = layer(x, mask)
        return x if self.final_norm is None else self.final_norm(x)

    def backward(self, dy):
        """dy (B, S, D) -> dx (B, S, D)."""
        if self.final_norm is not None:
            dy = self.final_norm.backward(dy)
        for layer in reversed(self.layers):
            dy = layer.backward(dy)
        return dy
