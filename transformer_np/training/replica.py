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


def paired(replica, model):
    """Return two lists of pairs, one of the replica and one of the model: their parameters, and their layers."""
    layers = (
        (mine, original)
        for (_, mine), (_, original) in zip(replica.named_modules(), model.named_modules(), strict=True)
    )
    return list(zip(replica.parameters(), model.parameters(), strict=True)), list(layers)


def synchronise(pairs):
    """Let the replica see the model's arrays and modes as they are now: some may have been replaced.

    `pairs` are those of `paired`: to find them anew for each step would take longer than the rest.
    """
    parameters, layers = pairs
    for mine, original in parameters:
        mine.data = original.data
        mine.zero_grad()
    for mine, original in layers:
        mine.training, mine.dtype = original.training, original.dtype
