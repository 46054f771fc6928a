"""Which gradient belongs to which value: in a layer, dX is the gradient of X, and backward goes the other way round."""

from collections import defaultdict


def gradient_pairs(records, aliases):
    """Return {number of a record of forward: number of the record that holds its gradient}.

    Changes in place finish a value, they make no new one: `dx = ..; dx -= ..; dx /= ..` is one value, the last.
    A name that is set several times, as in a loop, has its gradients in reverse order: the last dX belongs to the first
    X. Where the first dX is given to backward as an argument, it belongs to the last X, which forward returned.
    Pairs are made between arrays of one shape only.
    """
    values, gradients = _versions(records, aliases)
    pairs = {}
    for (module, variable), made in values.items():
        back = gradients.get((module, "d" + variable), [])
        if not back:
            continue
        if records[back[0]].role == "argument":
            candidates = zip(reversed(made), back, strict=False)
        else:
            candidates = zip(made, reversed(back), strict=False)
        for i, j in candidates:
            if records[i].value.shape == records[j].value.shape and records[i].value.dtype.kind not in "iub":
                pairs[i] = j
    return pairs


def _versions(records, aliases):
    """Return {(module, variable): numbers of its values in order}, one for the forward phases, one for backward."""
    values, gradients = defaultdict(list), defaultdict(list)
    # A further name that was given when there were n records stands before record n.
    events = [(n, 0, i, module, variable) for module, variable, i, n in aliases]
    events += [(i, 1, i, record.module, record.variable) for i, record in enumerate(records)]
    for n, own, i, module, variable in sorted(events):
        phase = records[min(n, len(records) - 1)].phase
        versions = (gradients if phase == "backward" else values)[module, variable]
        if own and records[i].in_place and versions:
            versions[-1] = i
        else:
            versions.append(i)
    return values, gradients
