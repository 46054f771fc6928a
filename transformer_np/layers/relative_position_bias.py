"""T5's relative position bias: a learned number for each head and each range of distances, added to the scores."""

import math

import numpy as np

from .. import kernels
from ..backend import array_module, widen
from ..checks import check_positive
from ..kernels import on_gpu
from ..module import Module, Parameter
from .positions import check_length


def relative_buckets(distance, n_buckets=32, max_distance=128, bidirectional=True):
    """Return the number of the bucket, 0 .. n_buckets-1, for every distance s - t (key minus query).

    Bidirectional: the first half of the buckets is for keys at or before the query, the second for those after. Causal:
    all are for keys at or before, and keys after it share bucket 0 with the query's own place.
    Within a half of n buckets, the distances below n/2 have one each; the others go by their logarithm,
        n/2 + floor(log(distance / (n/2)) / log(max_distance / (n/2)) * n/2),
    up to the last bucket, which takes everything from max_distance on.
    Source: Raffel et al. 2019, section 2.1; the formula is that of their code (mesh_tensorflow's transformer_layers).
    """
    if bidirectional:
        n = n_buckets // 2
        first, distance = n * (distance > 0), abs(distance)
    else:
        n = n_buckets
        first, distance = 0, (-distance).clip(0)
    exact = n // 2
    # In float32, as in T5's own code: at the edge of a bucket the last digit decides.
    scaled = np.log(distance.clip(exact).astype(np.float32) / np.float32(exact)) / np.float32(
        math.log(max_distance / exact)
    )
    far = exact + (scaled * np.float32(n - exact)).astype(np.int64)
    return first + np.where(distance < exact, distance, far.clip(0, n - 1))


@on_gpu(kernels.sums_by_bucket)
def sums_by_bucket(dbias, buckets, n_buckets):
    """dbias (H, T, S), buckets (T, S) -> for each bucket and head the sum over its places (n_buckets, H)."""
    sums = [np.bincount(buckets.ravel(), head.ravel(), minlength=n_buckets) for head in widen(dbias)]
    return np.stack(sums, axis=1)  # (n_buckets, H)


class RelativePositionBias(Module):
    """bias[h, t, s] = E[bucket(s - t), h], to be added to the scores of head h before the softmax.

    `bucket` gives short distances one bucket each and long ones a logarithmic range: see `relative_buckets`.
    Shapes: E (n_buckets, H), bias (1, H, T, S). One such layer serves a whole stack: its gradient is the sum of those
    of all the attentions that used it.
    Backward: dE[b, h] = the sum of dbias[h, t, s] over all (t, s) whose bucket is b. Returns None: there are no array
    inputs.
    Raises ValueError for sizes and lengths that do not fit.
    Source: Raffel et al. 2019, section 2.1. Derivation: docs/derivations/relative-position-bias.md.
    """

    def __init__(self, n_heads, n_buckets=32, max_distance=128, bidirectional=True, *, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        check_positive(self, n_heads=n_heads, n_buckets=n_buckets, max_distance=max_distance)
        exact = n_buckets // 4 if bidirectional else n_buckets // 2
        if exact < 1 or n_buckets % 2 or max_distance <= exact:
            raise ValueError(
                f"RelativePositionBias: n_buckets must be even, at least {4 if bidirectional else 2}, and max_distance "
                f"greater than {exact}, the distances with a bucket each; got {n_buckets} and {max_distance}"
            )
        self.n_heads, self.n_buckets, self.max_distance = n_heads, n_buckets, max_distance
        self.bidirectional, self.max_len = bidirectional, None
        self.weight = Parameter(
            (self.rng.standard_normal((n_buckets, n_heads)) / math.sqrt(n_heads)).astype(self.dtype)
        )

    def forward(self, n_queries, n_keys, offset=0):
        """T queries from position `offset` on, S keys from position 0 on -> bias (1, H, T, S)."""
        check_positive(self, n_queries=n_queries, n_keys=n_keys)
        check_length(self, n_queries, offset)
        # One value for each distance, then every row of the table is a stretch of those.
        distances = np.arange(1 - n_queries - offset, n_keys - offset)  # (T + S - 1,)
        buckets = relative_buckets(distances, self.n_buckets, self.max_distance, self.bidirectional)
        t, s = np.arange(n_queries)[:, None], np.arange(n_keys)
        xp = array_module(self.weight.data)
        buckets = xp.asarray(buckets[s - t + n_queries - 1])  # (T, S)
        bias = xp.ascontiguousarray(self.weight.data.T[:, buckets])[None]  # (1, H, T, S)
        self.save_for_backward(buckets, output=bias)
        return bias

    def backward(self, dbias):
        """dbias (1, H, T, S) -> None, since positions have no gradient; adds dE."""
        (buckets,) = self.saved(dbias)
        sums = sums_by_bucket(dbias[0], buckets, self.n_buckets)  # (n_buckets, H)
        self.weight.accumulate(sums.astype(self.dtype, copy=False))
        return None
