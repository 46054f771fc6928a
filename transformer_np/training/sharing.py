"""Sharing work among threads: when it pays, and who gets what."""

import os

from ..backend import array_module

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
