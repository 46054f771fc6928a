"""Token embeddings: a table with one learned row per token."""

import math

import numpy as np

from ..backend import array_module, is_half, widen
from ..checks import check_ids, check_positive, check_same_device
from ..module import Module, Parameter


def add_rows_plain(table, ids, rows):
    """table[ids[n]] += rows[n] for every n: a repeated id gets the sum (`table[ids] += rows` would not)."""
    array_module(table).add.at(table, ids, rows)


def add_rows(table, ids, rows):
    """The same as `add_rows_plain`, faster on the CPU: sort the ids, then sum each run of equal ids in one go.

    Shapes: table (V, D) changed in place, ids (N,), rows (N, D).
    """
    xp = array_module(table)
    if is_half(table):  # a frequent token's gradient is a long sum: in float32, rounded once
        sums = xp.zeros(table.shape, np.float32)
        add_rows(sums, ids, widen(rows))
        table += sums
        return None
    if xp.__name__ == "cupy":  # its scatter-add is one fast kernel
        return add_rows_plain(table, ids, rows)
    # Rows of zeros, such as padding has, stay out: the sum of the others would be grouped, so rounded, differently.
    counts = xp.flatnonzero((rows != 0).any(-1))
    if not counts.size:
        return None
    order = counts[xp.argsort(ids[counts], kind="stable")]
    sorted_ids = ids[order]
    first = xp.flatnonzero(xp.concatenate(([True], sorted_ids[1:] != sorted_ids[:-1])))  # where each run starts
    table[sorted_ids[first]] += xp.add.reduceat(rows[order], first, axis=0)
    return None


class Embedding(Module):
    """y = E[ids] * sqrt(d_model); with scaled=False just E[ids].

    Shapes: ids (...) integers, E (V, D), y (..., D). E starts as N(0, 1/D), so that the scaled rows have unit
    variance and a tied output layer starts with logits of unit size.
    Backward: dE[v] = sqrt(d_model) * the sum of dy over all places where ids == v. Ids have no gradient: returns None.
    Raises IndexError for an id outside 0..V-1, ValueError for ids that are no integers.
    Source: section 3.4. Derivation: docs/derivations/embedding.md.
    """

    def __init__(self, vocab_size, d_model, scaled=True, *, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        check_positive(self, vocab_size=vocab_size, d_model=d_model)
        self.vocab_size, self.d_model = vocab_size, d_model
        self.scale = math.sqrt(d_model) if scaled else 1.0
        self.weight = Parameter(
            (self.rng.standard_normal((vocab_size, d_model)) / math.sqrt(d_model)).astype(self.dtype)
        )

    def forward(self, ids):
        """ids (...) -> y (..., D)."""
        check_ids(self, "ids", ids, self.vocab_size)
        check_same_device(self, ids=ids, weight=self.weight.data)
        y = self.weight.data.take(ids, 0)  # (..., D), a copy: data[ids] would be a view where ids is one NumPy scalar
        y *= self.scale
        self.save_for_backward(ids, output=y)
        return y

    def backward(self, dy):
        """dy (..., D) -> None, since ids have no gradient; adds dE."""
        (ids,) = self.saved(dy)
        add_rows(self.weight.grad, ids.reshape(-1), (dy * self.scale).reshape(-1, self.d_model))
        return None
