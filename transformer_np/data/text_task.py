"""The task of `transformer-np train --task text`: guess the next character of a text."""

import math

import numpy as np

from .characters import CharacterTokenizer, read_text


def help_texts():
    """Return the texts behind Python's own `help("if")`, `help("TYPES")` and so on, about 400,000 characters.

    They come with Python (`pydoc_data.topics`), in another wording for each version. Several topics repeat whole
    sections of others; each paragraph stands here once, so that what is held out has not been seen.
    """
    from pydoc_data.topics import topics

    paragraphs = "\n\n".join(topics[name].strip("\n") for name in sorted(topics)).split("\n\n")
    return "\n\n".join(dict.fromkeys(paragraphs)) + "\n"


class TextTask:
    """A text as ids of characters: the last tenth is held out, the rest is to learn from.

    Parameters
    - text: any text; by default `help_texts()`. `TextTask.from_file(path)` reads a UTF-8 file.
    - length: how many characters the model sees at once, T.

    Attributes
    - tokenizer: a `CharacterTokenizer` of the characters in the training part.
    - train, validation: ids (N,).

    Raises ValueError for a length below 1, and a text with fewer than 20 stretches of that length.
    """

    def __init__(self, text=None, length=128):
        text = help_texts() if text is None else text
        if length < 1:
            raise ValueError(f"TextTask: got length {length}, expected 1 or more")
        least = 20 * (length + 1)
        if len(text) < least:
            raise ValueError(
                f"TextTask: the text has {len(text):,} characters, expected at least {least:,} to learn from stretches "
                f"of {length}"
            )
        self.length = length
        n_train = len(text) - len(text) // 10
        self.tokenizer = CharacterTokenizer.from_text(text[:n_train])
        self.train = np.array(self.tokenizer.encode(text[:n_train]))  # (N,)
        self.validation = np.array(self.tokenizer.encode(text[n_train:]))  # (N,)

    @classmethod
    def from_file(cls, path, length=128):
        """Read the text from a UTF-8 file."""
        return cls(read_text(path), length)

    def unigram_loss(self):
        """Return the validation loss (nats a character) of one who knows how frequent each character is, no more.

        The frequencies are those of the training part, one more of each, so that none is 0.
        """
        counts = np.bincount(self.train, minlength=len(self.tokenizer)) + 1.0
        return math.log(counts.sum()) - float(np.log(counts[self.validation]).mean())

    def validation_stretches(self):
        """Return the validation part cut into stretches: what is read and what should come next, both (N, T)."""
        n = (len(self.validation) - 1) // self.length * self.length
        return (self.validation[i : i + n].reshape(-1, self.length) for i in (0, 1))


class TextBatches:
    """Stretches of T characters from random places, with the character that follows each: ids and targets (B, T).

    Raises ValueError for a batch_size below 1.
    """

    def __init__(self, task, batch_size, seed=0):
        if batch_size < 1:
            raise ValueError(f"TextBatches: got batch_size {batch_size}, expected 1 or more")
        self.ids, self.length, self.batch_size, self.seed = task.train, task.length, batch_size, seed

    def __len__(self):
        """The number of batches in an epoch, which has as many characters as the text."""
        return max(1, len(self.ids) // (self.batch_size * self.length))

    def epoch(self, number=0):
        """Yield `(ids, targets)` for every batch of epoch `number`."""
        rng = np.random.default_rng([self.seed, number])
        for _ in range(len(self)):
            starts = rng.integers(0, len(self.ids) - self.length, self.batch_size)
            stretch = self.ids[starts[:, None] + np.arange(self.length + 1)]  # (B, T + 1)
            yield stretch[:, :-1], stretch[:, 1:]
