"""How a held-out layer is written: forward, right backward, and wrong gradients of single arrays with their kinds."""

from dataclasses import dataclass, field

import numpy as np


@dataclass
class HeldOut:
    """A layer outside the catalogue. draw(rng) gives (inputs, parameters, attributes); v holds all of them by name."""

    name: str
    draw: callable
    forward: callable  # v -> y
    backward: callable  # (dy, v) -> {name: gradient}
    wrong: list = field(default_factory=list)  # (name, kind, array, gradient(dy, v, right))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))
