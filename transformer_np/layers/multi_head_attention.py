"""Multi-head attention: several attentions side by side, each in a projection of its own."""

import itertools

from ..backend import array_module
from ..checks import check_choice, check_floats, check_mask, check_positive
from ..module import Module, is_inference
from .attention import ScaledDotProductAttention, check_bias
from .blockwise_attention import BlockwiseAttention
from .linear import Linear
from .rotary import RotaryPositions


def split_heads(x, n_heads):
    """(B, T, H*K) -> (B, H, T, K): split the last axis, then move the heads. A bare reshape would mix tokens."""
    return x.reshape(*x.shape[:-1], n_heads, -1).swapaxes(1, 2)


def merge_heads(x):
    """(B, H, T, K) -> (B, T, H*K), undoing `split_heads`."""
    x = x.swapaxes(1, 2)  # (B, T, H, K)
    return x.reshape(*x.shape[:2], -1)


def repeat_heads(x, n):
    """(B, G, S, K) -> (B, G*n, S, K): each head n times, next to each other."""
    return x if n == 1 else x.repeat(n, axis=1)


def sum_repeated_heads(dx, n):
    """(B, G*n, S, K) -> (B, G, S, K): the backward of `repeat_heads`, a sum over the n uses of each head."""
    return dx if n == 1 else dx.reshape(dx.shape[0], -1, n, *dx.shape[2:]).sum(2)


SMALL = 2**17  # numbers in the matrices of `project_together`: up to here, starting a product is much of its time


def project_together(x, linears, laid_out):
    """Return [linear(x) for linear in linears], faster for a few tokens: one product, where the matrices are small.

    Shapes: x (B, T, D), results (B, T, d_out) each. The matrices lie side by side in the dict `laid_out` from the
    first call on, so make a new dict when the weights have changed. Keeps nothing for backward.
    """
    if linears not in laid_out:
        if sum(linear.weight.size for linear in linears) > SMALL:
            return [linear(x) for linear in linears]
        xp, biases = array_module(x), [linear.bias for linear in linears]
        weight = xp.concatenate([linear.weight.data for linear in linears], 1)  # (D, all d_out)
        laid_out[linears] = weight, None if None in biases else xp.concatenate([bias.data for bias in biases])
    weight, bias = laid_out[linears]
    y = x.reshape(-1, x.shape[-1]) @ weight  # (B*T, all d_out)
    if bias is not None:
        y += bias
    y = y.reshape(*x.shape[:-1], -1).astype(x.dtype, copy=False)  # (B, T, all d_out)
    ends = itertools.accumulate(linear.d_out for linear in linears)
    return [y[..., end - linear.d_out : end] for linear, end in zip(linears, ends, strict=True)]


class MultiHeadAttention(Module):
    """y = concat(head_1 .. head_H) W_O,  head_i = attention(query W_Q,i, key W_K,i, value W_V,i).

    The H small projections of the paper lie side by side in one matrix each: W_Q (D, D), W_K (d_key, D), W_V
    (d_value, D), W_O (D, D), each with a bias unless bias=False. d_key and d_value are the widths of key and value, D
    by default.
    Shapes: query (B, T, D), key (B, S, d_key), value (B, S, d_value), mask boolean and broadcastable to (B, H, T, S)
    with True where a query may look, y (B, T, D). For self-attention pass the same array three times and add the three
    gradients. `weights` is (B, H, T, S) after forward: row t says where query t looked.
    Beyond the paper:
    n_kv_heads=G: fewer heads of keys and values, each serving H / G heads of queries in a row (grouped-query attention;
    one is multi-query attention). W_K and W_V are then G K wide, and so is a cache of them.
    d_head=K: the width of a head, where it is not D / H; W_Q is H K wide, and W_O (H K, D).
    rotary="interleaved" or "halves": queries and keys turn by their positions (see RotaryPositions): 0, 1, 2 .., or the
    integers `positions` (T,) or (B, T) given to forward. rotary_base, rotary_scaling: its base and scaling.
    scale and the `bias` given to forward: see ScaledDotProductAttention.
    attention="blockwise": the same result in memory that grows with T + S, not T S, from blocks of `block` queries and
    keys; causal=True then stands for a look-ahead mask, which is never made. `weights` stays None. See
    BlockwiseAttention.
    cache: while a text is generated, keys and values of earlier tokens need not be computed again. Forward hands the
    new ones to `cache.extend(self, k, v)`, which returns all of them, (B, G, S, K); with key=None it takes those that
    `cache[self]` holds, as cross-attention does after the first token. In self-attention, `cache.laid_out` is the
    dict of `project_together`. For use within `inference()`.
    Backward: the parts' backwards in reverse order; returns (dquery, dkey, dvalue), and dbias if there was a bias. A
    head of keys and values that served several heads of queries gets the sum of their gradients.
    Raises ValueError for shapes, dtypes and masks that do not fit, and where n_heads does not divide D.
    Source: section 3.2.2; grouped queries: Shazeer 2019, Ainslie et al. 2023. Derivation:
    docs/derivations/multi-head-attention.md.
    """

    def __init__(
        self,
        d_model,
        n_heads,
        n_kv_heads=None,
        *,
        d_head=None,
        d_key=None,
        d_value=None,
        rotary=None,
        rotary_base=10000.0,
        rotary_scaling=None,
        scale=None,
        attention="plain",
        block=128,
        causal=False,
        dropout=0.0,
        bias=True,
        seed=None,
        dtype="float32",
    ):
        super().__init__(seed, dtype)
        check_choice(self, "attention", attention, ("plain", "blockwise"))
        if causal and attention == "plain":
            raise ValueError('MultiHeadAttention: causal=True needs attention="blockwise"; give forward a mask instead')
        d_key, d_value = (d_model if d is None else d for d in (d_key, d_value))
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        check_positive(self, d_model=d_model, n_heads=n_heads, n_kv_heads=n_kv_heads, d_key=d_key, d_value=d_value)
        if d_head is None:
            if d_model % n_heads:
                raise ValueError(f"MultiHeadAttention: d_model {d_model} must be a multiple of n_heads {n_heads}")
            d_head = d_model // n_heads
        check_positive(self, d_head=d_head)
        if n_heads % n_kv_heads:
            raise ValueError(f"MultiHeadAttention: n_heads {n_heads} must be a multiple of n_kv_heads {n_kv_heads}")
        self.d_model, self.n_heads, self.n_kv_heads, self.d_head = d_model, n_heads, n_kv_heads, d_head
        self.d_key, self.d_value = d_key, d_value
        options = {"seed": self.rng, "dtype": dtype}
        self.w_q = Linear(d_model, n_heads * d_head, bias, **options)
        self.w_k = Linear(d_key, n_kv_heads * d_head, bias, **options)
        self.w_v = Linear(d_value, n_kv_heads * d_head, bias, **options)
        self.rotary_q = self.rotary_k = None
        if rotary is not None:
            turning = {"base": rotary_base, "scaling": rotary_scaling, "dtype": dtype}
            self.rotary_q, self.rotary_k = (RotaryPositions(d_head, rotary, **turning) for _ in range(2))
        if attention == "plain":
            self.attention = ScaledDotProductAttention(dropout, scale=scale, **options)
        else:
            self.attention = BlockwiseAttention(dropout, block=block, causal=causal, scale=scale, **options)
        self.w_o = Linear(n_heads * d_head, d_model, bias, **options)

    @property
    def weights(self):
        """The attention weights P (B, H, T, S) of the last forward, before dropout; None if there was none."""
        return self.attention.weights

    def forward(self, query, key, value, mask=None, bias=None, positions=None, cache=None):
        """query (B, T, D), key (B, S, d_key), value (B, S, d_value) -> y (B, T, D)."""
        positions = self._check_inputs(query, key, value, mask, bias, positions, cache)
        repeats = self.n_heads // self.n_kv_heads
        if cache is not None and query is key and key is value:
            projected = project_together(query, (self.w_q, self.w_k, self.w_v), cache.laid_out)
            q, k, v = map(split_heads, projected, (self.n_heads, self.n_kv_heads, self.n_kv_heads))
        else:
            q = split_heads(self.w_q(query), self.n_heads)  # (B, H, T, K)
            if key is not None:
                k = split_heads(self.w_k(key), self.n_kv_heads)  # (B, G, S, K)
                v = split_heads(self.w_v(value), self.n_kv_heads)  # (B, G, S, K)
        q_turned = q if self.rotary_q is None else self.rotary_q(q, positions=positions)
        if key is None:
            k_turned, v = cache[self]
        else:
            k_turned = k if self.rotary_k is None else self.rotary_k(k, positions=positions)
            if cache is not None:
                k_turned, v = cache.extend(self, k_turned, v)
        keys, values = repeat_heads(k_turned, repeats), repeat_heads(v, repeats)  # (B, H, S, K)
        heads = self.attention(q_turned, keys, values, mask, bias)  # (B, H, T, K)
        return self.w_o(merge_heads(heads))  # (B, T, D)

    def backward(self, dy):
        """dy (B, T, D) -> dquery (B, T, D), dkey (B, S, d_key), dvalue (B, S, d_value); with a bias, dbias too."""
        dheads = split_heads(self.w_o.backward(dy), self.n_heads)  # (B, H, T, K)
        dq, dkeys, dvalues, *dbias = self.attention.backward(dheads)
        repeats = self.n_heads // self.n_kv_heads
        dk, dv = sum_repeated_heads(dkeys, repeats), sum_repeated_heads(dvalues, repeats)  # (B, G, S, K)
        if self.rotary_q is not None:
            dq, dk = self.rotary_q.backward(dq), self.rotary_k.backward(dk)
        dquery = self.w_q.backward(merge_heads(dq))
        dkey = self.w_k.backward(merge_heads(dk))
        dvalue = self.w_v.backward(merge_heads(dv))
        return dquery, dkey, dvalue, *dbias

    def _check_inputs(self, query, key, value, mask, bias, positions, cache):
        """Check everything before any part runs; return the positions with an axis for the heads."""
        check_floats(self, "query", query, shape=(None, None, self.d_model), dtype=self.dtype)
        if cache is not None and not is_inference():
            raise RuntimeError("MultiHeadAttention: a cache has no backward, so use it within tnp.inference()")
        if key is None and cache is not None:
            n_keys = cache[self][0].shape[2]
        else:
            if key is not query or value is not query or not self.d_key == self.d_value == self.d_model:
                check_floats(self, "key", key, shape=(len(query), None, self.d_key), dtype=self.dtype)
                check_floats(self, "value", value, shape=(*key.shape[:2], self.d_value), dtype=self.dtype)
            n_keys = key.shape[1] if cache is None else cache.n_keys(key.shape[1])
        shape = (len(query), self.n_heads, query.shape[1], n_keys)  # (B, H, T, S)
        if mask is not None:
            check_mask(self, mask, shape)
        if bias is not None:
            check_bias(self, bias, shape, self.dtype)
        if positions is None:
            return None
        if self.rotary_q is None:
            raise ValueError("MultiHeadAttention: positions given, but the layer was made without rotary=")
        positions = positions[:, None] if getattr(positions, "ndim", 0) == 2 else positions  # (B, 1, T)
        self.rotary_q.check_positions(positions, (len(query), self.n_heads, query.shape[1]))
        if key is not None:
            self.rotary_k.check_positions(positions, (len(key), self.n_kv_heads, key.shape[1]))
        return positions
