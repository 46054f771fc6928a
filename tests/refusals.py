"""How the tests of bad input ask: just this error, just this message, and nothing has changed."""

import json
import re

import numpy as np
import pytest


def fingerprint(module):
    """All that a failed call must not touch: values, gradients, kept activations, random streams, modes."""
    parts = []
    for name, part in module.named_modules():
        parts.append((name, id(part._saved), part.training, json.dumps(part.rng.bit_generator.state, default=str)))
    for name, p in module.named_parameters():
        parts.append((name, p.data.tobytes(), p.has_grad and p.grad.tobytes()))
    return parts


def refuses(error, message, call, *unchanged):
    """`call` must raise just this error, say just this, and leave the modules as they were."""
    before = [fingerprint(m) for m in unchanged]
    with pytest.raises(error, match=re.escape(message)) as caught:
        call()
    assert type(caught.value) is error
    assert [fingerprint(m) for m in unchanged] == before


def used(layer, *inputs):
    """A layer in the middle of its work: it has gradients already, and activations of a forward that is waiting."""
    for _ in range(2):
        y = layer.forward(*inputs)
        layer.backward(np.ones_like(y))
    layer.forward(*inputs)
    return layer
