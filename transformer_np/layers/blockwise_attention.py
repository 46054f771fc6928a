"""Attention over long texts: the weights are computed a block at a time and thrown away, in backward once more."""

import math

from ..backend import array_module, row_dots, widen
from ..checks import check_floats, check_mask, check_positive, check_real
from ..module import Module
from ..products import matmul
from .attention import check_bias, sum_to_shape
from .dropout import Dropout


def blocks(length, size):
    """Yield slices that cover 0 .. length-1, `size` long but for the last."""
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))


def tile_of(array, rows, columns):
    """Return array[..., rows, columns] of a mask or bias, with an axis of size 1 left as it is: it will broadcast."""
    rows = rows if array.shape[-2] > 1 else slice(None)
    return array[..., rows, columns if array.shape[-1] > 1 else slice(None)]


class BlockwiseAttention(Module):
    """What ScaledDotProductAttention computes, in memory that grows with T + S, not with T S.

    The (T, S) weights are never there as a whole: a block of queries meets one block of keys after another, and only
    the running sums of the softmax are kept ("online softmax"). With scores s_t = q_t kᵀ / sqrt(K), block by block:
        m' = max(m, max s_t),  l' = l exp(m - m') + sum exp(s_t - m'),  a' = a exp(m - m') + (exp(s_t - m') * M) v
    from m = -inf, l = 0, a = 0; in the end y_t = a / l, and lse_t = m + log l is kept for backward.
    Shapes: q (..., T, K), k (..., S, K), v (..., S, Kv), mask boolean and broadcastable to (..., T, S) with True
    where a query may look, y (..., T, Kv). `block` is how many queries, and how many keys, meet at a time.
    causal=True: the queries are the last T of the S positions, and look at no later position than their own. No (T, S)
    mask is made for it, and blocks that lie wholly in the future are left out.
    Dropout, `scale` and `bias` (whose gradient has the size of the bias): see ScaledDotProductAttention. `weights`
    stays None.
    Backward computes each block of P again from lse, and draws its dropout mask M again from where the random stream
    stood. Block by block, with D_t = dy_t · y_t, which is sum(dP_t * P_t):
        P = exp(s - lse),  dv += (P * M)ᵀ dy,  dP = (dy vᵀ) * M,  ds = P * (dP - D),  dq += ds k / sqrt(K),
        dk += dsᵀ q / sqrt(K).
    A query that may look nowhere gets zeros, and zero gradients.
    Raises ValueError for shapes that do not fit and for a mask that is not boolean.
    Source: Milakov and Gimelshein 2018, algorithm 3; Rabe and Staats 2021; Dao et al. 2022 (FlashAttention).
    Derivation: docs/derivations/blockwise-attention.md.
    """

    weights = None

    def __init__(self, dropout=0.0, *, block=128, causal=False, scale=None, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        check_positive(self, block=block)
        if scale is not None:
            check_real(self, scale=scale)
        self.block, self.causal = block, bool(causal)
        self.scale = None if scale is None else float(scale)
        self.dropout = Dropout(dropout, seed=self.rng)

    def forward(self, q, k, v, mask=None, bias=None):
        """q (..., T, K), k (..., S, K), v (..., S, Kv) -> y (..., T, Kv)."""
        self._check_inputs(q, k, v, mask, bias)
        xp = array_module(q)
        scale = 1 / math.sqrt(q.shape[-1]) if self.scale is None else self.scale
        drops = self.dropout.training and self.dropout.p > 0
        mark = self.dropout.start() if drops else None
        dtype = widen(q[..., :0]).dtype  # of all sums
        y = xp.empty((*q.shape[:-1], v.shape[-1]), q.dtype)  # (..., T, Kv)
        lse = xp.empty((*q.shape[:-1], 1), dtype)  # (..., T, 1): log of the sum of exp(scores)
        for rows in blocks(q.shape[-2], self.block):
            q_rows = q[..., rows, :] * scale
            top = xp.full_like(lse[..., rows, :], -xp.inf)  # (..., t, 1)
            total = xp.zeros_like(top)  # (..., t, 1)
            mixed = xp.zeros(y[..., rows, :].shape, dtype)  # (..., t, Kv)
            for columns, allowed in self._columns(rows, q, k, mask):
                exps = self._scores(q_rows, k, bias, rows, columns, allowed)  # (..., t, s): scores first
                new_top = xp.maximum(top, exps.max(-1, keepdims=True))
                shift = xp.where(new_top == -xp.inf, 0, new_top)  # nothing to look at yet: -inf - -inf has no value
                shrink = xp.exp(top - shift)
                exps -= shift
                xp.exp(exps, out=exps)
                total *= shrink
                total += exps.sum(-1, keepdims=True)
                if drops:
                    exps *= self.dropout.draw_mask(exps)
                mixed *= shrink
                mixed += matmul(exps, v[..., columns, :])
                top = new_top
            blind = total == 0  # no key was allowed
            xp.copyto(total, 1, where=blind)
            xp.copyto(top, 0, where=blind)
            y[..., rows, :] = mixed / total
            lse[..., rows, :] = top + xp.log(total)
        self.save_for_backward(q, k, v, mask, bias, y, lse, scale, mark, output=y)
        return y

    def backward(self, dy):
        """dy (..., T, Kv) -> dq (..., T, K), dk (..., S, K), dv (..., S, Kv), and dbias if there was a bias."""
        q, k, v, mask, bias, y, lse, scale, mark = self.saved(dy)
        xp = array_module(q)
        dq, dk, dv = xp.zeros(q.shape, lse.dtype), xp.zeros(k.shape, lse.dtype), xp.zeros(v.shape, lse.dtype)
        dbias = () if bias is None else (xp.zeros(bias.shape, lse.dtype),)
        now = None if mark is None else self.dropout.rewind(mark)
        for rows in blocks(q.shape[-2], self.block):
            q_rows, dy_rows = q[..., rows, :] * scale, widen(dy[..., rows, :])
            mean = row_dots(dy_rows, widen(y[..., rows, :]))  # (..., t, 1): sum(dP * P) of each row
            for columns, allowed in self._columns(rows, q, k, mask):
                p = self._scores(q_rows, k, bias, rows, columns, allowed)  # (..., t, s)
                p -= lse[..., rows, :]
                xp.exp(p, out=p)
                dp = matmul(dy_rows, v[..., columns, :].swapaxes(-1, -2))  # (..., t, s)
                dropped = p
                if mark is not None:
                    dropout_mask = self.dropout.draw_mask(p)
                    dropped = p * dropout_mask
                    dp *= dropout_mask
                dv[..., columns, :] += matmul(dropped.swapaxes(-1, -2), dy_rows)
                dscores = xp.subtract(dp, mean, out=dp)
                dscores *= p
                for tile in (tile_of(db, rows, columns) for db in dbias):
                    tile += sum_to_shape(dscores, tile.shape)
                dq[..., rows, :] += matmul(dscores, k[..., columns, :])
                dk[..., columns, :] += matmul(dscores.swapaxes(-1, -2), q_rows)
        dq *= scale  # q_rows had the factor in it, k has not
        if mark is not None:
            self.dropout.rewind(now)
        dq, dk, dv, *dbias = (d.astype(dy.dtype, copy=False) for d in (dq, dk, dv, *dbias))
        return dq, dk, dv, *dbias

    def _check_inputs(self, q, k, v, mask, bias):
        """Raise, before anything runs, where an argument does not fit."""
        check_floats(self, "q", q, min_ndim=2)
        check_floats(self, "k", k, shape=(*q.shape[:-2], None, q.shape[-1]), dtype=q.dtype)
        check_floats(self, "v", v, shape=(*k.shape[:-1], None), dtype=q.dtype)
        if mask is not None:
            check_mask(self, mask, (*q.shape[:-1], k.shape[-2]))
        if bias is not None:
            check_bias(self, bias, (*q.shape[:-1], k.shape[-2]), q.dtype)

    def _columns(self, rows, q, k, mask):
        """Yield each block of keys that the queries `rows` look at, and where they may look in it (None: anywhere)."""
        xp = array_module(q)
        n_keys = k.shape[-2]
        earlier = n_keys - q.shape[-2]  # with causal=True, query t stands at position t + earlier
        for columns in blocks(earlier + rows.stop if self.causal else n_keys, self.block):
            allowed = None if mask is None else tile_of(mask, rows, columns)
            if self.causal and columns.stop > rows.start + earlier + 1:  # the first query does not see all of them
                t, s = xp.arange(rows.start, rows.stop)[:, None], xp.arange(columns.start, columns.stop)
                allowed = (s <= t + earlier) if allowed is None else allowed & (s <= t + earlier)
            yield columns, allowed

    def _scores(self, q_rows, k, bias, rows, columns, allowed):
        """Return the scores of one block (..., t, s), -inf where a query may not look."""
        tile = widen(matmul(q_rows, k[..., columns, :].swapaxes(-1, -2)))
        if bias is not None:
            tile += tile_of(bias, rows, columns)
        if allowed is not None:
            array_module(tile).copyto(tile, -math.inf, where=~allowed)
        return tile
