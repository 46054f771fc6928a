"""Scaled dot-product attention: each query takes a weighted mean of the values, weighted by how well the keys match."""

import math

from ..checks import check_floats, check_mask
from ..module import Module, is_inference
from .dropout import Dropout
from .softmax import softmax_backward, softmax_in_place


class ScaledDotProductAttention(Module):
    """y = dropout(P) V,  P = softmax(Q Kᵀ / sqrt(K)), one matrix product for each sentence and head.

    Shapes: q (..., T, K), k (..., S, K), v (..., S, Kv), mask boolean and broadcastable to (..., T, S) with True
    where a query may look, y (..., T, Kv). The leading axes, usually (B, H), must agree.
    Dividing by sqrt(K) keeps the scores' variance at 1, where the softmax still has a slope.
    Backward, with M the dropout mask over 1 - p, * entry by entry, P and dP with S as last axis:
        dV = (P * M)ᵀ dy,  dP = (dy Vᵀ) * M,  dS = P * (dP - sum(dP * P)),  dQ = dS K / sqrt(K),  dK = dSᵀ Q / sqrt(K).
    A query that may look nowhere gets zeros, and zero gradients. `weights` holds P after forward (None inside
    `inference()`).
    Raises ValueError for shapes that do not fit and for a mask that is not boolean.
    Source: equation 1. Derivation: docs/derivations/attention.md.
    """

    def __init__(self, dropout=0.0, *, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        self.dropout = Dropout(dropout, seed=self.rng)
        self.weights = None

    def forward(self, q, k, v, mask=None):
        """q (..., T, K), k (..., S, K), v (..., S, Kv) -> y (..., T, Kv)."""
        check_floats(self, "q", q, min_ndim=2)
        check_floats(self, "k", k, shape=(*q.shape[:-2], None, q.shape[-1]), dtype=q.dtype)
        check_floats(self, "v", v, shape=(*k.shape[:-1], None), dtype=q.dtype)
        if mask is not None:
            check_mask(self, mask, (*q.shape[:-1], k.shape[-2]))
        scale = 1 / math.sqrt(q.shape[-1])
        scores = (q * scale) @ k.swapaxes(-1, -2)  # (..., T, S); scaling q is cheaper than scaling the scores
        weights = softmax_in_place(scores, mask)
        dropout_mask, dropped = None, weights
        if self.dropout.training and self.dropout.p > 0:
            dropout_mask = self.dropout.scaled_mask(weights)
            dropped = weights * dropout_mask
        y = dropped @ v  # (..., T, Kv)
        self.weights = None if is_inference() else weights
        self.save_for_backward(q, k, v, weights, dropped, dropout_mask, output=y)
        return y

    def backward(self, dy):
        """dy (..., T, Kv) -> dq (..., T, K), dk (..., S, K), dv (..., S, Kv)."""
        q, k, v, weights, dropped, dropout_mask = self.saved(dy)
        scale = 1 / math.sqrt(q.shape[-1])
        dv = dropped.swapaxes(-1, -2) @ dy  # (..., S, Kv)
        dweights = dy @ v.swapaxes(-1, -2)  # (..., T, S)
        if dropout_mask is not None:
            dweights *= dropout_mask
        dscores = softmax_backward(dweights, weights, out=dweights)
        dscores *= scale
        dq = dscores @ k  # (..., T, K)
        dk = dscores.swapaxes(-1, -2) @ q  # (..., S, K)
        return dq, dk, dv
