"""Scaled dot-product attention: each query takes a weighted mean of the values, weighted by how well the keys match."""

import math

from ..backend import constant, widen
from ..checks import check_floats, check_mask, check_real, describe
from ..module import Module, is_inference
from ..products import matmul
from .dropout import Dropout
from .softmax import softmax_backward, softmax_in_place


def check_bias(owner, bias, shape, dtype):
    """Raise unless `bias` is a float array with as many axes as `shape` = (B, H, T, S), each of that size or 1."""
    check_floats(owner, "bias", bias, dtype=dtype)
    if bias.ndim != len(shape) or any(b not in (1, n) for b, n in zip(bias.shape, shape, strict=True)):
        raise ValueError(
            f"{type(owner).__name__}: bias must have {len(shape)} axes and broadcast to {tuple(shape)}, "
            f"got {describe(bias)}"
        )


def sum_to_shape(x, shape):
    """Sum x over the axes in which `shape` has size 1: the gradient of what was broadcast. Always a fresh array."""
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and x.shape[i] != 1)
    return widen(x).sum(axes, keepdims=True).astype(x.dtype, copy=False) if axes else x.copy()


class ScaledDotProductAttention(Module):
    """y = dropout(P) V,  P = softmax(Q Kᵀ / sqrt(K)), one matrix product for each sentence and head.

    Shapes: q (..., T, K), k (..., S, K), v (..., S, Kv), mask boolean and broadcastable to (..., T, S) with True
    where a query may look, y (..., T, Kv). The leading axes, usually (B, H), must agree.
    Dividing by sqrt(K) keeps the scores' variance at 1, where the softmax still has a slope. `scale` sets another
    factor (T5 has 1).
    A `bias` (..., T, S), each axis of full size or 1, is added to the scores, as relative positions do. Backward then
    returns (dq, dk, dv, dbias), dbias being dS summed over the axes in which the bias was broadcast.
    Backward, with M the dropout mask over 1 - p, * entry by entry, P and dP with S as last axis:
        dV = (P * M)ᵀ dy,  dP = (dy Vᵀ) * M,  dS = P * (dP - sum(dP * P)),  dQ = dS K / sqrt(K),  dK = dSᵀ Q / sqrt(K).
    A query that may look nowhere gets zeros, and zero gradients. `weights` holds P after forward (None inside
    `inference()`).
    Raises ValueError for shapes that do not fit and for a mask that is not boolean.
    Source: equation 1. Derivation: docs/derivations/attention.md.
    """

    def __init__(self, dropout=0.0, *, scale=None, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        if scale is not None:
            check_real(self, scale=scale)
        self.scale = None if scale is None else float(scale)
        self.dropout = Dropout(dropout, seed=self.rng)
        self.weights = None

    def forward(self, q, k, v, mask=None, bias=None):
        """q (..., T, K), k (..., S, K), v (..., S, Kv) -> y (..., T, Kv)."""
        check_floats(self, "q", q, min_ndim=2)
        check_floats(self, "k", k, shape=(*q.shape[:-2], None, q.shape[-1]), dtype=q.dtype)
        check_floats(self, "v", v, shape=(*k.shape[:-1], None), dtype=q.dtype)
        if mask is not None:
            check_mask(self, mask, (*q.shape[:-1], k.shape[-2]))
        if bias is not None:
            check_bias(self, bias, (*q.shape[:-1], k.shape[-2]), q.dtype)
        scale = constant(1 / math.sqrt(q.shape[-1]) if self.scale is None else self.scale, q)
        q_scaled = q * scale  # T x K numbers; to scale the scores would be T x S
        scores = matmul(q_scaled, k.swapaxes(-1, -2))  # (..., T, S)
        if bias is not None:
            scores += bias
        weights = softmax_in_place(scores, mask)
        drops = self.dropout.training and self.dropout.p > 0
        dropout_mask = self.dropout.scaled_mask(weights) if drops else None
        dropped = weights * dropout_mask if drops else weights
        y = matmul(dropped, v)  # (..., T, Kv)
        self.weights = None if is_inference() else weights
        self.save_for_backward(q_scaled, k, v, weights, dropped, dropout_mask, scale, bias, output=y)
        return y

    def backward(self, dy):
        """dy (..., T, Kv) -> dq (..., T, K), dk (..., S, K), dv (..., S, Kv), and dbias if there was a bias."""
        q_scaled, k, v, weights, dropped, dropout_mask, scale, bias = self.saved(dy)
        dv = matmul(dropped.swapaxes(-1, -2), dy)  # (..., S, Kv)
        ddropped = matmul(dy, v.swapaxes(-1, -2))  # (..., T, S)
        dweights = ddropped  # from here on in one array, each step in place of the one before
        if dropout_mask is not None:
            dweights *= dropout_mask
        dscores = softmax_backward(dweights, weights, out=dweights)
        dbias = () if bias is None else (sum_to_shape(dscores, bias.shape),)
        dq_scaled = matmul(dscores, k)  # (..., T, K)
        dq = dq_scaled * scale
        dk = matmul(dscores.swapaxes(-1, -2), q_scaled)  # (..., S, K)
        return dq, dk, dv, *dbias
