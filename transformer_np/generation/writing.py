"""Writing a text token by token, whatever the model is and however the next token is chosen."""

import contextlib
import inspect

import numpy as np

from ..backend import array_module
from ..checks import check_ids, describe, is_id
from ..module import inference
from .cache import KeyValueCache, MemoryCache, StateCache


@contextlib.contextmanager
def at_rest(model):
    """Dropout off and nothing kept for backward; afterwards the model and each part is in the mode it was in."""
    parts = [part for _, part in model.named_modules()] if hasattr(model, "named_modules") else [model]
    modes = [part.training for part in parts]
    model.eval()
    try:
        with inference():
            yield
    finally:
        for part, training in zip(parts, modes, strict=True):
            part.training = training


class Text:
    """A batch of N sentences that a model is writing: `next_logits` says what may come next.

    A model with an encoder reads `source` (N, S) and starts with `bos_id`; one without goes on from `source`, the
    prompt. mask (N, S) is True at real tokens; by default those that are not `model.pad_id`. A prompt's padding may
    stand anywhere: it is moved to the left, so that new tokens follow the text.
    `ids` (N, T) is the text so far, from `bos_id` or the prompt on. cache=False computes all anew for each token; or
    give a function that makes another cache, like KeyValueCache: functools.partial(SpillingCache, host_bytes=10**9).
    `max_len` is the number of new tokens; by default as many as the model can take. `forbid` are ids that are never to
    come: by default `bos_id` and padding. All that is written is text, also where it is `model.pad_id` or follows an
    end. `who` is named where something is refused.
    Raises TypeError for a model that writes no text, ValueError or IndexError for ids, masks and lengths that do not
    fit.
    """

    def __init__(self, who, model, source, mask=None, max_len=None, bos_id=1, cache=True, forbid=None):
        if not hasattr(model, "decode"):
            raise TypeError(f"{who}: got a {type(model).__name__}, which has no decode and so writes no text")
        xp = array_module(source)
        self.model, self.memory = model, None
        self.has_encoder = hasattr(model, "encode")
        size = model.src_embedding.vocab_size if self.has_encoder else model.vocab_size
        check_ids(model, "src" if self.has_encoder else "prompt", source, size, ndim=2)
        pad_id, n_tokens = getattr(model, "pad_id", None), count_tokens(model)
        if self.has_encoder:
            check_token(who, "bos_id", bos_id, n_tokens)
        if forbid is None:
            forbid = [i for i in ([bos_id, pad_id] if self.has_encoder else [pad_id]) if i is not None]
        self.forbid = list(forbid)
        for i in self.forbid:
            check_token(who, "forbid", i, n_tokens)
        if len(set(self.forbid)) == n_tokens:
            raise ValueError(f"{who}: forbid leaves no token to choose from")
        if n_tokens > xp.iinfo(source.dtype).max:  # the new ids would not fit
            source = source.astype("int64")
        if self.has_encoder:
            self.memory, self.mask = model.encode(source) if mask is None else model.encode(source, mask)
            self.ids = xp.full((len(source), 1), bos_id, source.dtype)  # (N, 1)
        else:
            if mask is None:
                mask = xp.ones(source.shape, bool) if pad_id is None else source != pad_id
            ids, self.mask = pad_left(who, source, mask)
            self.ids = xp.where(self.mask, ids, ids[:, -1:])  # what stands at padding has no say in what may repeat
        self.n_start = self.ids.shape[1]
        self.max_len = self._limit(who, max_len)
        self.cache, self.takes = None, inspect.signature(model.decode).parameters
        if cache and getattr(model, "recurrent", False):
            if cache is not True:
                raise ValueError(f"{who}: a recurrent model has no keys and values, so cache must be True or False")
            self.cache = StateCache()
        elif cache and "cache" in self.takes:
            memory = MemoryCache() if self.has_encoder else None
            capacity = self.n_start + self.max_len - 1  # the last token is written, but not read
            make = KeyValueCache if cache is True else cache
            self.cache = make(capacity, getattr(model, "window", None), memory)
        takes_layout = "laid_out" in inspect.signature(getattr(model.output, "forward", model.output)).parameters
        self.lays_out = takes_layout and self.cache is not None

    def _limit(self, who, max_len):
        """Return how many new tokens there may be."""
        longest = self.model.config.get("max_len")
        if max_len is None and longest is None:
            raise ValueError(f"{who}: this model has no max_len of its own, so max_len must be given")
        limit = longest - self.n_start + 1 if max_len is None else max_len
        if isinstance(limit, bool) or not isinstance(limit, (int, np.integer)) or limit < 1:
            raise ValueError(f"{who}: max_len must be at least 1, got {limit!r:.60}")
        return limit

    @property
    def n_new(self):
        """How many tokens each sentence has got so far."""
        return self.ids.shape[1] - self.n_start

    def next_logits(self):
        """Return the logits (N, V) of the token that comes next; after each call, call `append` once."""
        xp, model = array_module(self.ids), self.model
        if self.cache is None:
            unread, options = self.ids, {}
        else:
            unread, options = self.ids[:, self.cache.length :], {"cache": self.cache}
        if self.has_encoder:
            if self.cache is None and "tgt_mask" in self.takes:  # with a cache, all is taken as real anyway
                options["tgt_mask"] = xp.ones(unread.shape, bool)
            x = model.decode(unread, self.memory, self.mask, **options)  # (N, T, D)
            if self.cache is not None:
                self.memory = None  # what is needed of it is in the cache now
        else:
            mask = self.mask if self.cache is None or self.n_new == 0 else None
            x = model.decode(unread, mask, **options)
        # For the first token alone, to lay out a copy of the matrix would take longer than the product.
        laid_out = {"laid_out": self.cache.laid_out} if self.lays_out and self.n_new else {}
        logits = model.output(x[:, -1], **laid_out)  # (N, V)
        if self.forbid:
            logits[:, self.forbid] = -xp.inf
        return logits

    def append(self, chosen):
        """Add the next token of each sentence, (N,)."""
        xp = array_module(self.ids)
        self.ids = xp.concatenate([self.ids, chosen[:, None].astype(self.ids.dtype)], 1)
        if not self.has_encoder and self.cache is None:  # with a cache, only the first tokens need their mask
            self.mask = xp.concatenate([self.mask, xp.ones((len(chosen), 1), bool)], 1)

    def keep_rows(self, rows):
        """Go on with sentences `rows` (N',) of the batch, which may be fewer, more, or others than before."""
        self.ids, self.mask = self.ids[rows], self.mask[rows]
        if self.cache is not None:
            self.cache.keep_rows(rows)
        if self.memory is not None:
            self.memory = self.memory[rows]


def count_tokens(model):
    """Return how many tokens a model may choose from."""
    return model.tgt_embedding.vocab_size if hasattr(model, "tgt_embedding") else model.vocab_size


def check_token(who, name, token, n_tokens):
    """Raise ValueError unless `token` is an id of the vocabulary."""
    if not is_id(token, n_tokens):
        raise ValueError(f"{who}: {name} must be an id, 0 to {n_tokens - 1}, got {token!r:.60}")


def pad_left(who, ids, mask):
    """Move the padding of each sentence to its left: ids and mask (N, T) -> the same, the text at the right end."""
    if getattr(mask, "shape", None) != ids.shape or mask.dtype.kind != "b":
        raise ValueError(
            f"{who}: mask must be boolean of shape {tuple(ids.shape)}, True at real tokens, got {describe(mask)}"
        )
    if not bool(mask.any(1).all()):
        raise ValueError(f"{who}: every prompt needs at least one token that is no padding")
    xp = array_module(ids)
    order = xp.argsort(mask.astype("int8"), axis=1, kind="stable")  # padding first, and otherwise as it was
    return xp.take_along_axis(ids, order, 1), xp.take_along_axis(mask, order, 1)


def fill_id(model, eos_id):
    """Return the id that follows the end of a sentence: the model's `pad_id`, or where it has none, the end again."""
    pad_id = getattr(model, "pad_id", None)
    return (eos_id or 0) if pad_id is None else pad_id


def write(text, choose, eos_id=None):
    """Let `choose(logits (N, V), ids (N, T))` pick token after token; return the new ones, (N, T').

    A sentence ends with `eos_id` (None: never). Writing stops when all have ended, or after `text.max_len` tokens.
    """
    xp = array_module(text.ids)
    ended = xp.zeros(len(text.ids), bool)
    while text.n_new < text.max_len and not bool(ended.all()):
        chosen = choose(text.next_logits(), text.ids)  # (N,)
        if eos_id is not None:
            chosen = xp.where(ended, fill_id(text.model, eos_id), chosen)
            ended |= chosen == eos_id
        text.append(chosen)
    return text.ids[:, text.n_start :]
