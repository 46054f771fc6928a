"""The task of `transformer-np train --task reverse`: write random letters backwards."""

import string

import numpy as np

from .characters import CharacterTokenizer

SHORTEST = 3


class ReverseTask:
    """Sequences of random letters and their reverses: "qwzk" -> "kzwq". No sequence comes twice in the task.

    Nothing about one letter helps to guess another, so all there is to learn is where to look.

    Parameters
    - longest: letters in the longest sequence; lengths from 3 to this are equally likely.
    - n_train, n_test: sequences in each split.
    - seed: fixes the drawing.

    Attributes: `train` and `test`, lists of texts, and `tokenizer`, the same for both sides.
    Raises ValueError for a longest below 3 (two cannot tell a reversal from a copy with its ends swapped), sizes below
    1, and more sequences than there are.
    """

    def __init__(self, longest=12, *, n_train=20_000, n_test=1_000, seed=0):
        if longest < SHORTEST:
            raise ValueError(f"ReverseTask: got longest {longest}, expected {SHORTEST} or more")
        for name, size in (("n_train", n_train), ("n_test", n_test)):
            if size < 1:
                raise ValueError(f"ReverseTask: got {name} {size}, expected 1 or more")
        self.longest, letters = longest, string.ascii_lowercase
        self.tokenizer = CharacterTokenizer.from_text(letters)
        n, there_are = n_train + n_test, sum(len(letters) ** length for length in range(SHORTEST, longest + 1))
        if 2 * n > there_are:
            raise ValueError(f"ReverseTask: got {n:,} sequences to draw, expected at most half of the {there_are:,}")
        rng, drawn = np.random.default_rng(seed), {}
        while len(drawn) < n:
            length = int(rng.integers(SHORTEST, longest + 1))
            drawn["".join(letters[i] for i in rng.integers(len(letters), size=length))] = None
        texts = list(drawn)
        self.test, self.train = texts[:n_test], texts[n_test:]

    def ids(self, texts):
        """Return the source ids and the target ids of some texts, as two lists ready for `Batches`."""
        sources = [self.tokenizer.encode(text) for text in texts]
        return sources, [ids[::-1] for ids in sources]
