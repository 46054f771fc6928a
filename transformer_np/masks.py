"""Masks: boolean arrays that say where a query may look (True), broadcastable to (B, H, T, S).

They are combined with `&` and select scores; they are never added to them.
"""

import numpy as np

from .backend import array_module
from .checks import describe, is_id


def padding_mask(ids, pad_id=0):
    """Return (B, 1, 1, S): True at the keys that are real tokens. `ids` is (B, S); ValueError where it is not."""
    if getattr(ids, "ndim", None) != 2:
        raise ValueError(f"padding_mask: ids must be an array (B, S), got {describe(ids)}")
    return (ids != pad_id)[:, None, None, :]


def check_pad_id(owner, pad_id, vocab_size):
    """Raise ValueError unless `pad_id` is None, for no padding, or an id: any other would mask nothing, unnoticed."""
    if pad_id is not None and not is_id(pad_id, vocab_size):
        raise ValueError(f"{type(owner).__name__}: pad_id must be None or an id of the vocabulary, got {pad_id!r}")


def real_tokens(owner, name, ids, mask, pad_id):
    """Return `mask` (B, L), True at real tokens; where it is None, True at the ids (B, L) that are not `pad_id`.

    With neither all are real. Raises ValueError, in the name of the layer `owner`, for a mask that is not boolean or
    has another shape.
    """
    if mask is None:
        return array_module(ids).ones(ids.shape, bool) if pad_id is None else ids != pad_id
    if not hasattr(mask, "dtype") or mask.dtype.kind != "b" or mask.shape != ids.shape:
        raise ValueError(
            f"{type(owner).__name__}: {name} must be boolean of shape {tuple(ids.shape)}, True at real tokens, "
            f"got {describe(mask)}"
        )
    return mask


def look_ahead_mask(length, xp=np):
    """Return (1, 1, T, T): query t may look at keys 0 .. t. `xp` is the array module to make it in. Section 3.2.3."""
    return xp.tril(xp.ones((length, length), bool))[None, None]


def sliding_window_mask(length, window, causal=True, xp=np):
    """Return (1, 1, T, T): query t may look at the last `window` keys, t - window + 1 .. t.

    With causal=False it may look as far to both sides: at keys t - window + 1 .. t + window - 1. `xp` is the array
    module to make it in. Raises ValueError unless `window` is at least 1.
    Source: Beltagy et al. 2020 (Longformer), section 3.1; Jiang et al. 2023 (Mistral), section 2.
    """
    if window < 1:
        raise ValueError(f"sliding_window_mask: window must be at least 1, the query's own place, got {window}")
    positions = xp.arange(length)
    back = positions[:, None] - positions  # (T, T): how far key s lies behind query t
    return ((back < window) & (back >= (0 if causal else 1 - window)))[None, None]


def decoder_mask(ids, pad_id=0):
    """Return (B, 1, T, T) for the decoder's self-attention: no padding, and nothing ahead. `ids` is (B, T)."""
    return padding_mask(ids, pad_id) & look_ahead_mask(ids.shape[1], array_module(ids))
