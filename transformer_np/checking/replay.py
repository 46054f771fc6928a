"""Freezing randomness, so that the same function can be evaluated many times."""

import numpy as np

from .walk import sublayers


class Replay:
    """A context that leaves all random generators as it found them, and in which random numbers can repeat.

    reseed: the user's own function, called as it is. on: `replay_dropout(True)` where the subject has it, else the
    random generators in the attributes of the object and its sub-layers, and NumPy's global one, are rewound.
    `before_forward` is to be called before each forward, unless it is None.
    """

    def __init__(self, subject, on=False, reseed=None):
        self.subject, self.on, self.before_forward = subject, on, reseed
        self.own = on and callable(getattr(subject, "replay_dropout", None))

    def __enter__(self):
        self.rewind = _rewinder(self.subject)
        if self.own:
            self.subject.replay_dropout(True)
        elif self.on and self.before_forward is None:
            self.before_forward = self.rewind
        return self

    def __exit__(self, *exc):
        if self.own:
            self.subject.replay_dropout(False)
        self.rewind()
        return False


def _rewinder(subject):
    """Return a function that puts back the state that every random generator has now."""
    parts = subject if isinstance(subject, tuple) else (subject,)
    holders = [*parts, *(layer for part in parts for _, layer in sublayers(part))]
    values = [value for holder in holders if hasattr(holder, "__dict__") for value in vars(holder).values()]
    states = [(g.bit_generator, g.bit_generator.state) for g in values if isinstance(g, np.random.Generator)]
    old_states = [(r, r.get_state()) for r in values if isinstance(r, np.random.RandomState)]
    everywhere = np.random.get_state()  # noqa: NPY002  the strangers' layers use it

    def rewind():
        for bits, state in states:
            bits.state = state
        for random, state in old_states:
            random.set_state(state)
        np.random.set_state(everywhere)  # noqa: NPY002

    return rewind
