"""Replicas of a model: the same parameters, but activations and gradients of their own, so that threads do not meet."""

import copy

from ..module import Parameter


def replicate(model):
    """Return a copy of `model` whose parameters share the arrays of the original but gather gradients of their own.

    Layers, tied parameters and modes are copied as they are; each random stream becomes a new one, spawned from the
    original's, so that two replicas do not drop out the same places.
    """
    model.forget()
    parameters = model.parameters()
    memo = {id(p): Parameter(p.data) for p in parameters}  # deepcopy looks here first: one entry keeps a tie tied
    streams = {id(m.rng): m.rng for _, m in model.named_modules()}
    memo |= {key: rng.spawn(1)[0] for key, rng in streams.items()}
    return copy.deepcopy(model, memo)


def synchronise(replica, model):
    """Let the replica see the model's arrays and modes as they are now: some may have been replaced."""
    for mine, original in zip(replica.parameters(), model.parameters(), strict=True):
        mine.data = original.data
        mine.zero_grad()
    for (_, mine), (_, original) in zip(replica.named_modules(), model.named_modules(), strict=True):
        mine.training, mine.dtype = original.training, original.dtype
