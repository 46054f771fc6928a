"""Pairs of id sequences to padded batches, shuffled anew each epoch."""

from itertools import chain
from operator import index

import numpy as np

from .vocabulary import BOS, EOS, PAD


class Batches:
    """All pairs of a split as padded integer arrays, cut into batches. It knows ids only, nothing of texts.

    The target is given to the decoder one step late (teacher forcing):

        source   s1 s2 s3 0         src      s1 s2 s3 0         (B, S)
        target   t1 t2              tgt_in   bos t1 t2          (B, T)
                                    tgt_out  t1 t2 eos          (B, T)

    Every sequence is put in one padded array once, so making a batch is one fancy index, cut to the longest in it.

    Ids are int64: NumPy indexes an embedding with its own pointer size, so int32 ids would be converted again for each
    lookup, and the ids of a batch are some kilobytes either way.

    Parameters
    - sources, targets: equally many sequences of ids, without begin and end.
    - batch_size: pairs in a batch; the last batch of an epoch holds what is left, one pair perhaps.
    - seed: with the number of the epoch it fixes the order, so epoch 7 is the same after a restart.
    - shuffle: False keeps the given order, unless grouped (validation and test).
    - group_by_length: put pairs of nearly the same lengths into a batch, so little padding is computed. Batches
      then come in random order, and pairs of equal lengths in random company; but a batch is less varied.
    - pad, bos, eos: the special ids.

    Raises ValueError where there is nothing to batch, the two sides differ in number, a source is empty, or a sequence
    has the padding id inside; TypeError for ids that are not whole numbers.
    """

    def __init__(
        self, sources, targets, batch_size, *, seed=0, shuffle=True, group_by_length=False, pad=PAD, bos=BOS, eos=EOS
    ):
        batch_size = index(batch_size)
        if batch_size < 1:
            raise ValueError(f"Batches: got batch_size {batch_size}, expected 1 or more")
        if len(sources) != len(targets):
            raise ValueError(f"Batches: got {len(sources)} sources and {len(targets)} targets, expected equally many")
        if not len(sources):
            raise ValueError("Batches: got no pairs, expected at least one")
        self.batch_size, self.seed, self.shuffle, self.group_by_length = batch_size, seed, shuffle, group_by_length
        self._src, self._src_lengths = _padded(sources, pad, "sources")  # (N, S)
        target, target_lengths = _padded(targets, pad, "targets")  # (N, T - 1)
        if not self._src_lengths.all():
            raise ValueError(f"Batches: sources[{self._src_lengths.argmin()}] is empty, expected at least one id")
        rows = np.arange(len(target))
        self._tgt_in = np.pad(target, ((0, 0), (1, 0)), constant_values=bos)  # (N, T)
        self._tgt_out = np.pad(target, ((0, 0), (0, 1)), constant_values=pad)  # (N, T)
        self._tgt_out[rows, target_lengths] = eos
        self._tgt_lengths = target_lengths + 1

    def __len__(self):
        """The number of batches in an epoch."""
        return -(-len(self._src) // self.batch_size)

    @property
    def n_pairs(self):
        """The number of pairs in an epoch."""
        return len(self._src)

    def epoch(self, number=0):
        """Yield `(src, tgt_in, tgt_out)` for every batch of epoch `number`: each pair once, in that epoch's order."""
        rng = np.random.default_rng([self.seed, number])
        order = rng.permutation(self.n_pairs) if self.shuffle else np.arange(self.n_pairs)
        if self.group_by_length:  # a stable sort keeps the random order among pairs of equal lengths
            order = order[np.lexsort((self._tgt_lengths[order], self._src_lengths[order]))]
        starts = np.arange(0, self.n_pairs, self.batch_size)
        if self.group_by_length and self.shuffle:
            rng.shuffle(starts)
        for start in starts.tolist():
            yield self._batch(order[start : start + self.batch_size])

    def _batch(self, rows):
        S, T = self._src_lengths[rows].max(), self._tgt_lengths[rows].max()
        return self._src[rows, :S], self._tgt_in[rows, :T], self._tgt_out[rows, :T]  # (B, S), (B, T), (B, T)


def _padded(sequences, pad, name):
    """Put N sequences in one array; return it and the lengths: (N, L) and (N,)."""
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    ids = np.array(list(chain.from_iterable(sequences)))
    if ids.size and ids.dtype.kind not in "iu":
        raise TypeError(f"Batches: {name} hold {ids.dtype} values, expected whole numbers")
    filled = np.arange(lengths.max()) < lengths[:, None]  # (N, L)
    padded = np.full(filled.shape, pad, dtype=np.int64)
    padded[filled] = ids
    inside = (padded == pad) & filled
    if inside.any():
        raise ValueError(f"Batches: {name}[{inside.any(axis=1).argmax()}] has the padding id {pad} inside")
    return padded, lengths
