"""What the models of one stack have in common: a text goes in, and for every token comes a guess at the next."""

import math

import numpy as np

from ..backend import array_module, is_reading_late
from ..checks import check_ids, check_positive
from ..layers.positions import check_length
from ..masks import check_pad_id, real_tokens
from ..module import Module
from .files import save


class DecoderOnly(Module):
    """logits = norm(layer_N(.. layer_1(embed(ids)))) Eᵀ: the base of GPT and Llama, which make the parts and `embed`.

    Shapes: ids (B, T) integers, logits (B, T, V). `logits[:, t]` sees ids[:, 0..t], so it predicts ids[:, t+1]; train
    with `step(text[:, :-1], text[:, 1:])`. The layers are EncoderLayers: what makes them a decoder is the mask.
    mask (B, T) is True at real tokens; by default those that are not `pad_id`, or all where that is None. Padding is
    never looked at, and positions count real tokens only, so that padding on either side changes nothing.
    Backward: the parts' backwards in reverse order. Returns None: ids have no gradient.
    """

    def __init__(self, vocab_size, n_layers, max_len, pad_id, window, seed, dtype):
        super().__init__(seed, dtype)
        limits = {name: n for name, n in (("max_len", max_len), ("window", window)) if n is not None}
        check_positive(self, vocab_size=vocab_size, n_layers=n_layers, **limits)
        check_pad_id(self, pad_id, vocab_size)
        self.vocab_size, self.max_len, self.pad_id, self.window = vocab_size, max_len, pad_id, window

    def forward(self, ids, mask=None):
        """ids (B, T), mask (B, T) or None -> logits (B, T, V)."""
        return self.output(self.decode(ids, mask))

    def decode(self, ids, mask=None, cache=None):
        """ids (B, T), mask (B, T) or None -> what the output layer sees (B, T, D).

        With a KeyValueCache, ids are the T tokens that follow those the cache has seen; a mask goes with the first.
        """
        n_before = 0 if cache is None else cache.length
        check_ids(self, "ids", ids, self.vocab_size, ndim=2)
        check_length(self, ids.shape[1], n_before)
        if mask is not None or (self.pad_id is not None and n_before == 0):
            mask = real_tokens(self, "mask", ids, mask, self.pad_id)
            if not is_reading_late() and bool(mask.all()):  # nothing to leave out, so no need for a mask for each
                mask = None
        positions, may_look = self._look(ids, mask) if cache is None else self._look_back(ids, mask, cache)
        x = self.embed(ids, positions)  # (B, T, D)
        turns = positions if self.rotary and (mask is not None or cache is not None) else None  # None: 0, 1, 2 ..
        for layer in self.layers:
            x = layer(x, may_look, positions=turns, cache=cache)
        if cache is not None:
            cache.length += ids.shape[1]
        return self.final_norm(x)

    def backward(self, dlogits):
        """dlogits (B, T, V) -> None; adds every parameter's gradient."""
        dx = self.final_norm.backward(self.output.backward(dlogits))
        for layer in reversed(self.layers):
            dx = layer.backward(dx)
        self.embed_backward(dx)

    def save(self, path):
        """Write weights and configuration to one safetensors file; `tnp.load(path)` reads it back."""
        save(self, path)

    def _look(self, ids, mask):
        """Return positions, (1, T) or (B, T), and who may look at whom, (1, 1, T, T) or (B, 1, T, T)."""
        places = array_module(ids).arange(ids.shape[1])
        may_look = self._in_sight(places, places, array_module(ids))
        if mask is None:
            return places[None], may_look
        return (mask.cumsum(1) - 1).clip(0), may_look & mask[:, None, None, :]

    def _look_back(self, ids, mask, cache):
        """The same for new tokens, which may look at themselves and at what the cache keeps."""
        if mask is not None:
            cache.begin(mask)
        xp, n_new = array_module(ids), ids.shape[1]
        places = np.arange(cache.length, cache.length + n_new)
        if n_new == 1 and cache.n_padding is None:  # a single new token may look at all that is kept
            return xp.asarray(places)[None], None
        key_places = cache.key_places(n_new)
        may_look = self._in_sight(places, key_places, xp)  # (1, 1, T, S)
        places, key_places = xp.asarray(places), xp.asarray(key_places)
        if cache.n_padding is None:
            return places[None], may_look
        n_padding = cache.n_padding[:, None]
        return (places - n_padding).clip(0), may_look & (key_places >= n_padding)[:, None, None, :]

    def _in_sight(self, places, key_places, xp):
        """(1, 1, T, S): no token looks ahead, nor further back than the window."""
        back = places[:, None] - key_places  # (T, S): how far the key lies behind
        return xp.asarray((back >= 0) & (back < (self.window or math.inf)))[None, None]

    def _draw_weights(self, n_layers):
        """Draw all matrices from N(0, 0.02²), those that write to the residual path smaller by sqrt(2 N).

        The path adds up 2 N such outputs, and so starts with the same variance at any depth. Source: Radford et al.
        2019, section 2.3; the 0.02 is that of Radford et al. 2018, section 4.1.
        """
        for name, p in self.named_parameters():
            if p.data.ndim == 2:
                writes = name.endswith(("w_o.weight", "linear2.weight"))
                scale = 0.02 / math.sqrt(2 * n_layers) if writes else 0.02
                p.data[...] = scale * self.rng.standard_normal(p.shape)
