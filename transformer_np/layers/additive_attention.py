"""Additive attention (Bahdanau): a small network, not a dot product, says how well a key matches a query."""

import math

import numpy as np

from ..backend import array_module
from ..checks import check_floats, check_mask, check_positive
from ..module import Module, Parameter, is_inference
from ..products import matmul
from .linear import Linear
from .softmax import softmax_backward, softmax_in_place


class AdditiveAttention(Module):
    """y_t = sum over s of P_ts value_s,  P = softmax over s of e,  e_ts = tanh(query_t W + key_s U) · v.

    Shapes: query (B, T, d_query), key (B, S, d_key), value (B, S, Dv), W (d_query, A), U (d_key, A), v (A,) with
    A = d_attention, y (B, T, Dv). mask is boolean and broadcastable to (B, 1, T, S), True where a query may look;
    `weights` is P as (B, 1, T, S) after forward (None inside `inference()`).
    Backward, with n_ts = tanh(query_t W + key_s U) and m = 1 - n²:
        dvalue_s = sum over t of P_ts dy_t,  dP_ts = dy_t · value_s,  de = P * (dP - sum of dP * P over s),
        dv = sum of de_ts n_ts,  da_ts = de_ts v * m_ts,  then the sum of da_ts over s goes back through W, that over t
        through U.
    For every pair of query and key there are A numbers, which is why the Transformer's attention, a matrix product, is
    faster.
    A query that may look nowhere gets zeros, and zero gradients.
    Raises ValueError for shapes, dtypes and masks that do not fit.
    Source: Bahdanau et al. 2014, section A.1.2; section 3.2.1. Derivation: docs/derivations/additive-attention.md.
    """

    def __init__(self, d_query, d_key, d_attention, *, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        check_positive(self, d_query=d_query, d_key=d_key, d_attention=d_attention)
        self.d_query, self.d_key = d_query, d_key
        self.w_q = Linear(d_query, d_attention, bias=False, seed=self.rng, dtype=dtype)
        self.w_k = Linear(d_key, d_attention, bias=False, seed=self.rng, dtype=dtype)
        limit = 1 / math.sqrt(d_attention)
        self.v = Parameter(np.asarray(self.rng.uniform(-limit, limit, d_attention), self.dtype))
        self.weights = None

    def forward(self, query, key, value, mask=None):
        """query (B, T, d_query), key (B, S, d_key), value (B, S, Dv) -> y (B, T, Dv)."""
        check_floats(self, "query", query, shape=(None, None, self.d_query), dtype=self.dtype)
        check_floats(self, "key", key, shape=(len(query), None, self.d_key), dtype=self.dtype)
        check_floats(self, "value", value, shape=(*key.shape[:2], None), dtype=self.dtype)
        if mask is not None:
            check_mask(self, mask, (len(query), 1, query.shape[1], key.shape[1]))
        sums = self.w_q(query)[:, :, None] + self.w_k(key)[:, None]  # (B, T, S, A)
        hidden = array_module(query).tanh(sums, out=sums)
        scores = matmul(hidden, self.v.data)  # (B, T, S)
        weights = softmax_in_place(scores[:, None], mask)[:, 0]  # (B, T, S)
        y = matmul(weights, value)  # (B, T, Dv)
        self.weights = None if is_inference() else weights[:, None]  # (B, 1, T, S)
        self.save_for_backward(value, hidden, weights, output=y)
        return y

    def backward(self, dy):
        """dy (B, T, Dv) -> dquery (B, T, d_query), dkey (B, S, d_key), dvalue (B, S, Dv); adds dv, dW and dU."""
        value, hidden, weights = self.saved(dy)
        dvalue = matmul(weights.swapaxes(-1, -2), dy)  # (B, S, Dv)
        dweights = matmul(dy, value.swapaxes(-1, -2))  # (B, T, S)
        dscores = softmax_backward(dweights, weights, out=dweights)
        self.v.accumulate(dscores.reshape(-1) @ hidden.reshape(-1, hidden.shape[-1]))
        hidden *= hidden  # ours alone, and used up
        dsums = (1 - hidden) * self.v.data
        dsums *= dscores[..., None]  # (B, T, S, A)
        dquery = self.w_q.backward(dsums.sum(2))
        dkey = self.w_k.backward(dsums.sum(1))
        return dquery, dkey, dvalue
