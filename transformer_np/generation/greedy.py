"""Greedy decoding: at every step take the most likely next token."""

from .writing import Text, at_rest, check_token, count_tokens, write


def greedy(model, src, max_len=None, bos_id=1, eos_id="default", *, mask=None, cache=True, forbid=None):
    """Write on from src, token by token; return the new ids (B, T').

    A model with an encoder translates src (B, S), beginning with `bos_id`; one without continues src, the prompt.
    Each sentence ends with `eos_id` (by default 2 with an encoder, and no end without one) and is filled up with
    `model.pad_id`; decoding stops when all have ended or after `max_len` tokens (by default the model's limit).
    `bos_id` and padding are never chosen; see Text for this and for mask, cache and forbid.
    Dropout is off while decoding, whatever mode the model is in.
    """
    with at_rest(model):
        text = Text("greedy", model, src, mask, max_len, bos_id, cache, forbid)
        return write(text, lambda logits, ids: logits.argmax(-1), end_id("greedy", model, eos_id))


def end_id(who, model, eos_id):
    """Return `eos_id`; for "default" 2 where there is an encoder, as in our vocabularies, else None.

    Raises ValueError, in the name of `who`, for what is neither None nor an id.
    """
    if isinstance(eos_id, str) and eos_id == "default":
        return 2 if hasattr(model, "encode") else None
    if eos_id is not None:
        check_token(who, "eos_id", eos_id, count_tokens(model))
    return eos_id
