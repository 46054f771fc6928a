"""Masks: boolean arrays that say where a query may look (True), broadcastable to (B, H, T, S).

They are combined with `&` and select scores; they are never added to them.
"""

import numpy as np

from .backend import array_module
from .checks import describe


def padding_mask(ids, pad_id=0):
    """Return (B, 1, 1, S): True at the keys that are real tokens. `ids` is (B, S); ValueError where it is not."""
    if getattr(ids, "ndim", None) != 2:
        raise ValueError(f"padding_mask: ids must be an array (B, S), got {describe(ids)}")
    return (ids != pad_id)[:, None, None, :]


def look_ahead_mask(length, xp=np):
    """Return (1, 1, T, T): query t may look at keys 0 .. t. `xp` is the array module to make it in. Section 3.2.3."""
    return xp.tril(xp.ones((length, length), bool))[None, None]


def decoder_mask(ids, pad_id=0):
    """Return (B, 1, T, T) for the decoder's self-attention: no padding, and nothing ahead. `ids` is (B, T)."""
    return padding_mask(ids, pad_id) & look_ahead_mask(ids.shape[1], array_module(ids))
