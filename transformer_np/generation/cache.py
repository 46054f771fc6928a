"""The key/value cache: attention needs the keys and values of all earlier tokens, and they never change."""

import math

import numpy as np

from ..backend import array_module, to_numpy
from ..checks import check_positive


class KeyValueCache:
    """Keys and values of the tokens seen so far, of every self-attention of a model.

    Pass one to `model.decode` with the prompt, then with the next token (of each sentence), and so on: each attention
    adds the new keys and values and looks at all. The result is that of the whole text at once, since a token looks at
    earlier ones only, whose keys and values stay as they were. So a text of n tokens costs n steps of one token each.
    The n-th token stands at place n - 1. `capacity` places are set aside: all that keys and values ever take.
    With `window` no more than that many are kept, for a model whose tokens look no further back: a new token then takes
    the room of the one that has just gone out of sight, and a text may go on for ever.
    `memory` is a MemoryCache for a model with an encoder.
    A cache is for one text and for the weights that the model has meanwhile: some layers keep copies of theirs in
    `laid_out`, in a form that is faster for single tokens.
    Shapes: keys and values (B, G, S, K) with G heads of them.
    Raises ValueError where `capacity` places are not enough.
    """

    def __init__(self, capacity, window=None, memory=None):
        check_positive(self, capacity=capacity, window=1 if window is None else window)
        self.capacity = capacity if window is None else min(capacity, window)
        self.window = window
        self.memory = memory
        self.length = 0  # how many tokens the model has seen; `decode` counts
        self.n_padding = None  # (B,): how many tokens of padding each sentence begins with; None where there is none
        self.laid_out = {}  # a layer, or several -> their weights as they suit a few rows
        self._arrays = {}  # attention layer -> its keys and values, (B, G, capacity, K) each
        self._writers = None  # (B, capacity): which sentence of the batch, as it was then, wrote what a slot holds
        self._noted = 0  # how many tokens that tells about

    def begin(self, real):
        """Note which of the first tokens are real, (B, T). Padding must stand on the left: new tokens follow text."""
        n_padding = (~real).sum(1)
        if self.length:
            raise ValueError("KeyValueCache: a mask belongs to the first tokens; those that follow are all real")
        if not bool((real == (array_module(real).arange(real.shape[1]) >= n_padding[:, None])).all()):
            raise ValueError("KeyValueCache: padding must stand on the left of each sentence, since new tokens follow")
        self.n_padding = n_padding if bool(n_padding.any()) else None

    def extend(self, layer, k, v):
        """Add `layer`'s keys and values (B, G, T, K) of T new tokens; return all that these may look at."""
        xp, n_new = array_module(k), k.shape[2]
        overwrites = self._overwrites(n_new)
        if layer not in self._arrays:
            shape = (*k.shape[:2], self.capacity, k.shape[3])
            self._arrays[layer] = [self._room(shape, k), self._room(shape, v)]
        first = self.length % self.capacity
        slots = slice(first, first + n_new)
        if slots.stop > self.capacity:  # round the end: the last `capacity` of the new tokens stay
            slots = xp.arange(self.length, self.length + n_new)[-self.capacity :] % self.capacity
        everything = []
        for kept, new in zip(self._arrays[layer], (k, v), strict=True):
            if overwrites:  # what a later one of the new tokens replaces, an earlier one may still look at
                everything.append(xp.concatenate([xp.asarray(kept[:, :, : self.length]), new], 2))
            if not isinstance(slots, slice):
                slots = beside(kept, slots)
            kept[:, :, slots] = beside(kept, new[:, :, -self.capacity :])
            if not overwrites:
                everything.append(xp.asarray(kept[:, :, : self.length + n_new]))
        return everything

    def _room(self, shape, like):
        """Return an array of that shape, of the dtype of `like` and where that lives."""
        return array_module(like).empty(shape, like.dtype)

    def _overwrites(self, n_new):
        """Say whether several new tokens do not fit beside the kept ones; a single one replaces what it cannot see."""
        if self.window is None and self.length + n_new > self.capacity:
            raise ValueError(
                f"KeyValueCache: {n_new} new tokens after {self.length} pass the capacity of {self.capacity}"
            )
        return n_new > 1 and self.length + n_new > self.capacity

    def n_keys(self, n_new):
        """How many keys `extend` will return for `n_new` new tokens."""
        if self._overwrites(n_new):
            return min(self.length, self.capacity) + n_new
        return min(self.length + n_new, self.capacity)

    def key_places(self, n_new):
        """The places of the keys that `extend` will return for `n_new` new tokens: (S,), a NumPy array."""
        if self._overwrites(n_new):
            return np.concatenate([self.key_places(0), np.arange(self.length, self.length + n_new)])
        last = self.length + n_new - 1
        return last - (last - np.arange(self.n_keys(n_new))) % self.capacity  # the newest that belongs into each slot

    def keep_rows(self, rows):
        """Go on with sentences `rows` (N,) of the batch: fewer, more, or others than before."""
        if self.n_padding is not None:
            self.n_padding = self.n_padding[rows]
        if self._arrays:
            self._move(to_numpy(rows))
        if self.memory is not None:
            self.memory.keep_rows(rows)

    def _move(self, rows):
        """Let each sentence of the batch have the keys and values of sentence `rows` (N,), a NumPy array."""
        before = self._up_to_date_writers()
        self._writers = before[rows]
        if len(rows) != len(before):
            filled = slice(min(self.length, self.capacity))
            for arrays in self._arrays.values():
                for i, kept in enumerate(arrays):
                    arrays[i] = self._room((len(rows), *kept.shape[1:]), kept)
                    arrays[i][:, :, filled] = beside(arrays[i], kept[beside(kept, rows), :, filled])
            return
        differs = self._writers != before  # beams of one sentence have most of their text in common: it may stay
        if differs.any():
            moved, slots = np.flatnonzero(differs.any(1)), np.flatnonzero(differs.any(0))
            slots = slice(slots[0], slots[-1] + 1)
            for arrays in self._arrays.values():
                for kept in arrays:
                    kept[beside(kept, moved), :, slots] = kept[beside(kept, rows[moved]), :, slots]

    def _up_to_date_writers(self):
        """Note that each sentence has written its own latest tokens; return the writers of all."""
        if self._writers is None:
            n_sentences = len(next(iter(self._arrays.values()))[0])
            self._writers = np.zeros((n_sentences, self.capacity), np.int32)
        latest = np.arange(max(self._noted, self.length - self.capacity), self.length) % self.capacity
        self._writers[:, latest] = np.arange(len(self._writers))[:, None]
        self._noted = self.length
        return self._writers

    @property
    def nbytes(self):
        """The memory that the arrays take, in bytes."""
        own = sum(kept.nbytes for arrays in self._arrays.values() for kept in arrays)
        return own + (0 if self.memory is None else self.memory.nbytes)


def beside(array, x):
    """Return x where `array` lives: on the GPU, or in the machine's own memory."""
    if type(array) is type(x):
        return x
    return to_numpy(x) if array_module(array) is np else array_module(array).asarray(x)


class SpillingCache(KeyValueCache):
    """A KeyValueCache under a budget: what does not fit on the GPU is kept in the machine's memory, then on disk.

    The first layers take `gpu_bytes` of the GPU's memory (if that is where the model is), the next ones `host_bytes` of
    the machine's, and the others lie in files in `folder` (None: where temporary files go), which vanish with the
    cache. A layer's keys and values come back for the moment in which it looks at them, so the text is the same.
    Raises ValueError for budgets below 0; OSError where the disk is full.
    """

    def __init__(self, capacity, window=None, memory=None, *, gpu_bytes=0, host_bytes=0, folder=None):
        super().__init__(capacity, window, memory)
        if gpu_bytes < 0 or host_bytes < 0:
            raise ValueError(f"SpillingCache: budgets must be at least 0, got {gpu_bytes} and {host_bytes} bytes")
        self.budget, self.folder = {"gpu": gpu_bytes, "host": host_bytes}, folder
        self.left = dict(self.budget)

    def keep_rows(self, rows):
        """Go on with sentences `rows` (N,) of the batch."""
        self.left = dict(self.budget)  # for another number of sentences every layer gets other room
        super().keep_rows(rows)

    def _room(self, shape, like):
        n_bytes = math.prod(shape) * like.dtype.itemsize
        if array_module(like) is not np and n_bytes <= self.left["gpu"]:
            self.left["gpu"] -= n_bytes
            return array_module(like).empty(shape, like.dtype)
        if n_bytes <= self.left["host"]:
            self.left["host"] -= n_bytes
            return np.empty(shape, like.dtype)
        import tempfile

        with tempfile.TemporaryFile(dir=self.folder) as file:  # it has no name, and lasts as long as the array
            return np.memmap(file, like.dtype, "w+", shape=shape)


class MemoryCache:
    """Keys and values of the encoder's output, of every cross-attention: computed with the first token, and no more."""

    def __init__(self):
        self._arrays = {}  # attention layer -> its keys and values, (B, G, S, K) each
        self._sentences = None  # (B,): which sentence of the first batch each row belongs to

    def __getitem__(self, layer):
        """The layer's keys and values."""
        return self._arrays[layer]

    def extend(self, layer, k, v):
        """Keep `layer`'s keys and values, and return them."""
        self._arrays[layer] = k, v
        self._sentences = array_module(k).arange(len(k))
        return k, v

    def n_keys(self, n_new):
        """How many keys `extend` will return."""
        return n_new

    def keep_rows(self, rows):
        """Go on with sentences `rows` (N,) of the batch."""
        before, self._sentences = self._sentences, self._sentences[rows]
        if before.shape == self._sentences.shape and bool((before == self._sentences).all()):
            return  # beams changed places within their sentences, which all look at the same memory
        for layer, arrays in self._arrays.items():
            self._arrays[layer] = tuple(kept[rows] for kept in arrays)

    @property
    def nbytes(self):
        """The memory that the arrays take, in bytes."""
        return sum(kept.nbytes for arrays in self._arrays.values() for kept in arrays)


class StateCache:
    """What a recurrent decoder needs of the text so far: its last states. So a new token costs one step.

    `model.decode` reads and writes `states` (B, n_states, D), and `vectors` (B, S, D), the encoder's outputs, which
    attention looks at; both come with the first tokens.
    """

    def __init__(self):
        self.length = 0  # how many tokens the model has seen; `decode` counts
        self.states = self.vectors = None
        self.laid_out = {}  # a layer -> its weights as they suit a few rows

    def keep_rows(self, rows):
        """Go on with sentences `rows` (N,) of the batch: fewer, more, or others than before."""
        self.states, self.vectors = self.states[rows], self.vectors[rows]

    @property
    def nbytes(self):
        """The memory that the arrays take, in bytes."""
        return 0 if self.states is None else self.states.nbytes + self.vectors.nbytes
