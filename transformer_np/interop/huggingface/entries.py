"""How a tensor of theirs is made of parameters of ours, and the sizes that a config names."""

from dataclasses import dataclass

import numpy as np

# Hugging Face's names of activations, and ours. Two names for one function: the first is written.
ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "sigmoid": "sigmoid",
}


@dataclass(frozen=True)
class Entry:
    """Their tensor of `shape` is our parameters side by side along the last axis, transposed if it is a linear map's.

    (Theirs is (d_out, d_in) then, ours (d_in, d_out). GPT-2's are not: its Conv1D keeps them as we do.)
    pairs_of: the width of a head whose features turn in pairs of neighbours here, and of halves there.
    """

    ours: tuple
    shape: tuple
    transposed: bool = False
    pairs_of: int | None = None

    def to_ours(self, array, shapes):
        """Cut their tensor into our arrays, of these shapes."""
        array = array.reshape(len(array), -1).T if self.transposed else array
        parts = np.split(array, len(self.ours), axis=-1)
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def to_theirs(self, arrays):
        """Put our arrays together to their tensor."""
        array = np.concatenate(arrays, axis=-1)
        if self.pairs_of is not None:  # features 0, 1, 2, 3 .. of a head become 0, 2 .. and then 1, 3 ..
            pairs = array.reshape(len(array), -1, self.pairs_of // 2, 2)  # (D, H, K/2, 2)
            array = pairs.swapaxes(-1, -2).reshape(array.shape)
        return np.ascontiguousarray((array.T if self.transposed else array).reshape(self.shape))


def linear(theirs, ours, d_in, d_out, bias=True):
    """The entries of a linear map."""
    entries = {f"{theirs}.weight": Entry((f"{ours}.weight",), (d_out, d_in), True)}
    return entries | ({f"{theirs}.bias": Entry((f"{ours}.bias",), (d_out,))} if bias else {})


def table(theirs, ours, *shape):
    """The entry of an embedding."""
    return {f"{theirs}.weight": Entry((f"{ours}.weight",), shape)}


def norm(theirs, ours, d_model, shift=True):
    """The entries of a layer norm; without a shift, of an RMS norm."""
    entries = {f"{theirs}.weight": Entry((f"{ours}.gamma",), (d_model,))}
    return entries | ({f"{theirs}.bias": Entry((f"{ours}.beta",), (d_model,))} if shift else {})


class Config:
    """A config.json whose values are asked for one by one, each checked; ValueError names the key."""

    def __init__(self, content):
        self.content = content

    def get(self, key, default=None):
        """Return the value, or the default where the key is missing."""
        return self.content.get(key, default)

    def size(self, key, default=None):
        """Return an integer of at least 1."""
        value = self.content.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"config.json: {key} must be an integer of at least 1, got {value!r:.60}")
        return value

    def number(self, key, default):
        """Return a number that is not negative."""
        value = self.content.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise ValueError(f"config.json: {key} must be a number of at least 0, got {value!r:.60}")
        return float(value)

    def table(self, key):
        """Return an object, {} where it is null or missing."""
        value = self.content.get(key)
        if value is not None and not isinstance(value, dict):
            raise ValueError(f"config.json: {key} must be an object, got {value!r:.60}")
        return value or {}

    def text(self, key, default):
        """Return a string."""
        value = self.content.get(key, default)
        if not isinstance(value, str):
            raise ValueError(f"config.json: {key} must be a string, got {value!r:.60}")
        return value

    def activation(self, key, default):
        """Return our name of an activation."""
        value = self.content.get(key, default)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise ValueError(f"config.json: {key} must be one of {', '.join(ACTIVATIONS)}, got {value!r:.60}")
        return ACTIVATIONS[value]

    def pad_id(self, vocab_size, default=None):
        """Return pad_token_id, the default where it is missing, None where it is null or no id of the vocabulary."""
        value = self.content.get("pad_token_id", default)
        is_id = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < vocab_size
        return value if is_id else None

    def own_pad_id(self, vocab_size):
        """Return pad_token_id if it is a token of its own, else None.

        Many give the end token for it; that one stands in texts too, where transformers looks at it, as ours must.
        """
        pad_id = self.pad_id(vocab_size)
        used = [self.content.get(f"{name}_token_id") for name in ("bos", "eos")]
        return None if any(pad_id in (u if isinstance(u, list) else [u]) for u in used) else pad_id

    def must_be(self, **values):
        """Raise ValueError where a key is there with another value than the given one, which is its default."""
        for key, value in values.items():
            if self.content.get(key, value) != value:
                raise ValueError(f"config.json: {key} = {self.content[key]!r:.60} has no counterpart, only {value!r}")


def activation_name(ours):
    """Return Hugging Face's name of an activation."""
    return next(theirs for theirs, name in ACTIVATIONS.items() if name == ours)
