"""Multi-head attention: several attentions side by side, each in a projection of its own."""

from ..checks import check_floats, check_mask, check_positive
from ..module import Module
from .attention import ScaledDotProductAttention
from .linear import Linear


def split_heads(x, n_heads):
    """(B, T, H*K) -> (B, H, T, K): split the last axis, then move the heads. A bare reshape would mix tokens."""
    return x.reshape(*x.shape[:-1], n_heads, -1).swapaxes(1, 2)


def merge_heads(x):
    """(B, H, T, K) -> (B, T, H*K), undoing `split_heads`."""
    x = x.swapaxes(1, 2)  # (B, T, H, K)
    return x.reshape(*x.shape[:2], -1)


class MultiHeadAttention(Module):
    """y = concat(head_1 .. head_H) W_O,  head_i = attention(query W_Q,i, key W_K,i, value W_V,i).

    The H small projections of the paper lie side by side in one matrix each: W_Q (D, D), W_K (d_key, D), W_V
    (d_value, D), W_O (D, D), each with a bias unless bias=False. d_key and d_value are the widths of key and value, D
    by default.
    Shapes: query (B, T, D), key (B, S, d_key), value (B, S, d_value), mask boolean and broadcastable to (B, H, T, S)
    with True where a query may look, y (B, T, D). For self-attention pass the same array three times and add the three
    gradients. `weights` is (B, H, T, S) after forward: row t says where query t looked.
    Backward: the parts' backwards in reverse order; returns (dquery, dkey, dvalue).
    Raises ValueError for shapes, dtypes and masks that do not fit, and where n_heads does not divide D.
    Source: section 3.2.2. Derivation: docs/derivations/multi-head-attention.md.
    """

    def __init__(
        self, d_model, n_heads, *, d_key=None, d_value=None, dropout=0.0, bias=True, seed=None, dtype="float32"
    ):
        super().__init__(seed, dtype)
        d_key, d_value = (d_model if d is None else d for d in (d_key, d_value))
        check_positive(self, d_model=d_model, n_heads=n_heads, d_key=d_key, d_value=d_value)
        if d_model % n_heads:
            raise ValueError(f"MultiHeadAttention: d_model {d_model} must be a multiple of n_heads {n_heads}")
        self.d_model, self.n_heads, self.d_key, self.d_value = d_model, n_heads, d_key, d_value
        options = {"seed": self.rng, "dtype": dtype}
        self.w_q = Linear(d_model, d_model, bias, **options)
        self.w_k = Linear(d_key, d_model, bias, **options)
        self.w_v = Linear(d_value, d_model, bias, **options)
        self.attention = ScaledDotProductAttention(dropout, **options)
        self.w_o = Linear(d_model, d_model, bias, **options)

    @property
    def weights(self):
        """The attention weights P (B, H, T, S) of the last forward, before dropout; None if there was none."""
        return self.attention.weights

    def forward(self, query, key, value, mask=None):
        """query (B, T, D), key (B, S, d_key), value (B, S, d_value) -> y (B, T, D)."""
        check_floats(self, "query", query, shape=(None, None, self.d_model), dtype=self.dtype)
        check_floats(self, "key", key, shape=(len(query), None, self.d_key), dtype=self.dtype)
        check_floats(self, "value", value, shape=(*key.shape[:2], self.d_value), dtype=self.dtype)
        if mask is not None:
            check_mask(self, mask, (len(query), self.n_heads, query.shape[1], key.shape[1]))
        q = split_heads(self.w_q(query), self.n_heads)  # (B, H, T, K)
        k = split_heads(self.w_k(key), self.n_heads)  # (B, H, S, K)
        v = split_heads(self.w_v(value), self.n_heads)  # (B, H, S, K)
        heads = self.attention(q, k, v, mask)  # (B, H, T, K)
        return self.w_o(merge_heads(heads))  # (B, T, D)

    def backward(self, dy):
        """dy (B, T, D) -> dquery (B, T, D), dkey (B, S, d_key), dvalue (B, S, d_value)."""
        dheads = split_heads(self.w_o.backward(dy), self.n_heads)  # (B, H, T, K)
        dq, dk, dv = self.attention.backward(dheads)
        dquery = self.w_q.backward(merge_heads(dq))
        dkey = self.w_k.backward(merge_heads(dk))
        dvalue = self.w_v.backward(merge_heads(dv))
        return dquery, dkey, dvalue
