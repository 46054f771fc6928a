"""Sharing work among threads: when it pays, who gets what, and the shards of a batch side by side."""

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor, wait

from ..backend import array_module
from .replica import paired, replicate, synchronise

WIDE = 128  # from this width on a call on a shard takes longer than handing Python's lock from thread to thread
MOST = 8  # more shards than this would mostly hold more gradients


def threads_for(model, n_cores=None):
    """Return how many threads should share a batch on `n_cores` (None: those this process may use); None for none.

    A batch in shards pays where arrays are large: NumPy's loops, which by themselves use one core, then run on several.
    In a narrow model Python is what takes the time, of which only one thread runs at once; there the matrix library's
    own threads are better. The width is taken from the matrix whose shorter side is longest. On a GPU: None.
    """
    if n_cores is None:
        n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parameters = model.parameters()
    width = max((min(p.shape) for p in parameters if len(p.shape) == 2), default=0)
    on_cpu = array_module(*(p.data for p in parameters)).__name__ == "numpy"
    return min(n_cores, MOST) if on_cpu and width >= WIDE and n_cores > 1 else None


def deal(sizes, n):
    """Deal things of these sizes to n hands, the largest first, each to the hand that holds least; return indices."""
    hands, held = [[] for _ in range(n)], [0] * n
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        least = held.index(min(held))
        hands[least].append(i)
        held[least] += sizes[i]
    return hands


class Shards:
    """A batch cut into n shards of sentences, each on a replica of the model and in a thread of its own.

        with shards.at_work():
            results = shards.gradients(compute, batch)  # compute(replica, shard) fills the replica's gradients
            shards.map(update, parameters)

    Gradients are added in the order of the shards, whichever ends first. Each is summed by the thread that uses it
    first, just before, which leaves it in that thread's cache; at the end of `at_work` all of them are whole.
    """

    def __init__(self, model, n):
        self.model, self.n = model, n
        self._pool = None
        self._parameters, self._unsummed = [], {}

    @property
    def replicas(self):
        """The replicas of the model as it is now, one for each shard."""
        self._follow_the_model()
        return self._replicas

    @contextlib.contextmanager
    def at_work(self):
        """Hold the matrix library to one thread, since we have our own."""
        if self._pool is None:
            from threadpoolctl import ThreadpoolController

            self._pool = ThreadPoolExecutor(self.n, thread_name_prefix="shard")
            self._blas = ThreadpoolController()
        with self._blas.limit(limits=1, user_api="blas"):
            try:
                yield
            finally:
                for parameter in self._parameters:  # those that nobody has used yet
                    self._add_up(parameter)

    def gradients(self, compute, batch):
        """Return what compute(replica, shard) returns for each shard; then the replicas hold the gradients."""
        n_shards = min(self.n, len(batch[0]))
        shards = zip(*(split(part, n_shards) for part in batch), strict=True)
        self._unsummed = {}
        results = self._side_by_side(compute, zip(self.replicas[:n_shards], shards, strict=True))
        self._unsummed = {id(p): parts for p, *parts in zip(self._parameters, *self._of_each, strict=True)}
        for parameter in self._parameters:
            self._add_up(parameter, 1)  # the first is no sum: the array changes hands
        return results

    def add_all(self):
        """Add up all gradients now, for an optimizer that looks at them before it uses `map`."""
        self.map(lambda parameter: None, self._parameters)

    def map(self, function, parameters, *others):
        """`map`, shared out so that each thread gets about as many numbers."""
        columns = list(zip(parameters, *others, strict=True))
        results = [None] * len(columns)

        def those_in(hand):
            for i in hand:
                self._add_up(parameters[i])
                results[i] = function(*columns[i])

        hands = deal([p.size for p in parameters], self.n)
        self._side_by_side(those_in, ((hand,) for hand in hands))
        return results

    def _follow_the_model(self):
        """Let the replicas see the model as it is now; make them anew where it has other parameters than before."""
        parameters = self.model.parameters()
        if parameters != self._parameters:
            self._parameters = parameters
            self._replicas = [replicate(self.model) for _ in range(self.n)]
            self._pairs = [paired(replica, self.model) for replica in self._replicas]
            self._of_each = [replica.parameters() for replica in self._replicas]
        for pairs in self._pairs:
            synchronise(pairs)

    def _add_up(self, parameter, n=None):
        """Add the gradients of its parts, the replicas' parameters, to that of the parameter: the first n, or all."""
        parts = self._unsummed.get(id(parameter), [])
        for part in parts[:n]:
            if part.has_grad:
                parameter.accumulate(part.grad)
                part.zero_grad()
        del parts[:n]

    def _side_by_side(self, function, arguments):
        """Return what function(*arguments) returns for each of the arguments, each in a thread of its own."""
        futures = [self._pool.submit(function, *those) for those in arguments]
        wait(futures)  # all of them, also where one raises: no shard may still be at work when the next step begins
        return [future.result() for future in futures]


def split(part, n):
    """Cut an array into n shards of sentences; a tuple of arrays into n tuples."""
    if isinstance(part, tuple):
        return list(zip(*(split(p, n) for p in part), strict=True))
    return array_module(part).array_split(part, n)
