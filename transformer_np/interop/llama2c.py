"""llama2.c's files: a Llama from its .bin of version 0, and its tokenizer.

The model, little-endian: seven integers (i32) D, F, layers, heads, heads of keys and values, V, longest length, V being
negative where the output has a matrix of its own. Then float32 arrays, each for all layers in a row: embedding, norms
before attention, W_Q, W_K, W_V, W_O, norms before feed-forward, w1 (the gate), w2 (down), w3 (up), the last norm, the
cosines and sines of rotary positions (not needed), and that matrix of the output. Matrices are (d_out, d_in). Rotary
positions turn neighbours ("interleaved"), eps is 1e-5.
The tokenizer: the longest token's length (u32), then for each token its score (f32), length (i32) and bytes.
Source: llama2.c's export.py (legacy_export), tokenizer.py and run.c.
"""

import itertools
import math
import struct

import numpy as np

from ..backend import to_numpy
from ..files import write_atomically
from ..layers.rotary import rotary_angles
from ..models import Llama
from .binary import BinaryReader

EPS, ROTARY_BASE = 1e-5, 10000.0
HEADER = ("d_model", "d_ff", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "max_len")


def load(path, dtype="float32"):
    """Return the Llama in a llama2.c file of version 0.

    Raises FileNotFoundError, and ValueError, before anything is made, where the sizes in the header make no sense or do
    not add up to the size of the file.
    """
    file = BinaryReader(path)
    config = {name: file.number("i", name) for name in HEADER}
    config["tie_embeddings"] = config["vocab_size"] > 0
    config["vocab_size"] = abs(config["vocab_size"])
    d, heads, groups = (config[name] for name in ("d_model", "n_heads", "n_kv_heads"))
    if min(config[name] for name in HEADER) < 1 or d % heads or heads % groups or d // heads % 2:
        raise file.error(f"the header's sizes make no model: {', '.join(f'{n} {config[n]}' for n in HEADER)}")
    n_bytes = 4 * sum(math.prod(shape) for _, shape, _ in layout(config))
    if n_bytes != file.remaining():
        raise file.error(f"the header's sizes need {n_bytes} more bytes and {file.remaining()} are left")
    state = {}
    for name, shape, is_matrix in layout(config):
        array = file.array("float32", shape, "weights")
        if name is not None:
            for i, part in enumerate(array):
                state[name.format(i=i)] = (part.T if is_matrix else part).astype(dtype)
    return Llama(**config, layout="interleaved", eps=EPS, dtype=dtype).load_state_dict(state).eval()


def save(model, path):
    """Write a Llama as a llama2.c file of version 0, in float32, all or nothing.

    Raises TypeError for another model, and ValueError for options that llama2.c has not.
    """
    if not isinstance(model, Llama):
        raise TypeError(f"llama2c.save: got {type(model).__name__}, expected Llama")
    config = _config(model)
    state = {name: to_numpy(p.data) for name, p in model.named_parameters()}
    sizes = [config[name] for name in HEADER]
    if not config["tie_embeddings"]:
        sizes[HEADER.index("vocab_size")] *= -1
    angles = rotary_angles(np.arange(config["max_len"]), config["d_model"] // config["n_heads"], ROTARY_BASE)
    tables = iter((np.cos(angles), np.sin(angles)))
    content = [struct.pack("<7i", *sizes)]
    for name, shape, is_matrix in layout(config):
        arrays = [next(tables)] if name is None else [state[name.format(i=i)] for i in range(shape[0])]
        arrays = [array.T for array in arrays] if is_matrix else arrays
        content.append(np.stack(arrays).astype("<f4").tobytes())
    write_atomically(path, b"".join(content))


def _config(model):
    """Return the arguments a Llama was made with, defaults filled in; ValueError for what llama2.c has not."""
    config = dict(model.config)
    attention = model.layers[0].self_attention
    config["n_kv_heads"], config["d_ff"] = attention.n_kv_heads, model.layers[0].feed_forward.linear1.d_out
    needed = {
        "layout": "interleaved",
        "rotary_base": ROTARY_BASE,
        "rotary_scaling": None,
        "eps": EPS,
        "activation": "silu",
        "window": None,
    }
    unlike = [name for name, value in needed.items() if config[name] != value]
    if attention.d_head * attention.n_heads != config["d_model"]:
        unlike.append("d_head")
    if config["max_len"] is None:
        unlike.append("max_len")
    if unlike:
        raise ValueError(
            f"llama2c.save: llama2.c has no {', '.join(f'{name}={config[name]!r}' for name in unlike)}; it needs "
            f"{', '.join(f'{name}={value!r}' for name, value in needed.items())}, a max_len, and no d_head"
        )
    return config


def layout(config):
    """Yield (our name, with {i} for the layer; shape in the file, layers first; whether these are matrices), in order.

    The two tables of rotary positions have no name.
    """
    d, f, n, vocab = (config[name] for name in ("d_model", "d_ff", "n_layers", "vocab_size"))
    d_head = d // config["n_heads"]
    d_kv = config["n_kv_heads"] * d_head
    yield "embedding.weight", (1, vocab, d), False
    yield "layers.{i}.norm1.gamma", (n, d), False
    for x, d_out in (("q", d), ("k", d_kv), ("v", d_kv), ("o", d)):
        yield f"layers.{{i}}.self_attention.w_{x}.weight", (n, d_out, d), True
    yield "layers.{i}.norm2.gamma", (n, d), False
    yield "layers.{i}.feed_forward.linear_gate.weight", (n, f, d), True
    yield "layers.{i}.feed_forward.linear2.weight", (n, d, f), True
    yield "layers.{i}.feed_forward.linear1.weight", (n, f, d), True
    yield "final_norm.gamma", (1, d), False
    for _ in ("cosines", "sines"):
        yield None, (1, config["max_len"], d_head // 2), False
    if not config["tie_embeddings"]:
        yield "output.weight", (1, vocab, d), False


class Tokenizer:
    """SentencePiece's byte-pair encoding, as llama2.c has it: tokens with scores, and 256 tokens for bytes.

    `tokens` are bytes in the order of their ids, `scores` their numbers: of all neighbours that are a token together,
    those with the highest score are merged first, the leftmost where scores are equal. Ids 1 and 2 begin and end a
    text. A character without a token becomes the tokens of its UTF-8 bytes, ids 3 to 258.
    """

    bos, eos, first_byte = 1, 2, 3

    def __init__(self, tokens, scores):
        if len(tokens) != len(scores) or len(tokens) < self.first_byte + 256:
            raise ValueError(
                f"Tokenizer: got {len(tokens)} tokens and {len(scores)} scores, expected as many, and at least "
                f"{self.first_byte + 256}: three special ones, and one for each byte"
            )
        self.tokens, self.scores = list(tokens), list(scores)
        self._ids = {}
        for i, token in enumerate(tokens):
            self._ids.setdefault(token, i)

    def __len__(self):
        return len(self.tokens)

    @classmethod
    def load(cls, path):
        """Read a tokenizer file of llama2.c, such as tok512.bin. Raises FileNotFoundError and ValueError."""
        file = BinaryReader(path)
        longest = file.number("I", "length of the longest token")
        tokens, scores = [], []
        while file.remaining():
            scores.append(file.number("f", "score"))
            n_bytes = file.number("i", "length of a token")
            if n_bytes > longest:
                raise file.error(f"token {len(tokens)} is {n_bytes} bytes long, the longest should have {longest}")
            tokens.append(file.raw(n_bytes, "token"))
        try:
            return cls(tokens, scores)
        except ValueError as error:
            raise file.error(error) from error

    def encode(self, text, bos=True, eos=False):
        """Return the ids of a text, with the begin token in front and the end token behind, if asked for.

        A space is put before the text, as SentencePiece does, so that a first word is as any other word; "" has none.
        """
        ids = [] if not text else [i for character in (" ", *text) for i in self._ids_of(character)]
        while len(ids) > 1:
            pairs = [self._ids.get(self.tokens[a] + self.tokens[b]) for a, b in itertools.pairwise(ids)]
            known = [place for place, pair in enumerate(pairs) if pair is not None]
            if not known:
                break
            best = max(known, key=lambda place: self.scores[pairs[place]])  # the first of equals
            ids[best : best + 2] = [pairs[best]]
        return [self.bos] * bos + ids + [self.eos] * eos

    def _ids_of(self, character):
        """Return the id of a character, or those of its bytes."""
        content = character.encode("utf-8")
        return [self._ids[content]] if content in self._ids else [self.first_byte + byte for byte in content]

    def decode(self, ids):
        """Return the text of a list or array of ids, without begin and end tokens.

        The space that stands before the text is taken off; bytes that are no UTF-8 show as U+FFFD. Raises IndexError
        for an id outside the vocabulary.
        """
        content, after_bos = [], True
        for i in map(int, ids):
            if not 0 <= i < len(self.tokens):
                raise IndexError(f"Tokenizer.decode: got the id {i}, expected 0 to {len(self.tokens) - 1}")
            if i not in (self.bos, self.eos):
                token = self.tokens[i]
                if self.first_byte <= i < self.first_byte + 256:
                    token = bytes([i - self.first_byte])
                content.append(token[1:] if after_bos and token.startswith(b" ") else token)
            after_bos = i == self.bos or (after_bos and i == self.eos)
        return b"".join(content).decode("utf-8", errors="replace")
