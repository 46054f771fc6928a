"""Greedy decoding: at every step take the most likely next token."""

from ..backend import array_module
from ..checks import check_ids
from ..module import inference


def greedy(model, src, max_len=None, bos_id=1, eos_id=2):
    """Translate src (B, S) by an encoder-decoder model, token by token; return ids (B, T') without the first bos_id.

    Each sentence ends with `eos_id` and is filled up with `model.pad_id`; decoding stops when all have ended or after
    `max_len` tokens (by default the model's limit). `bos_id` starts every sentence; it and padding are never chosen.
    Dropout is off while decoding, whatever mode the model is in.
    """
    xp = array_module(src)
    limit = model.config["max_len"] if max_len is None else max_len
    check_ids(model, "src", src, model.src_embedding.vocab_size, ndim=2)
    if limit is None:
        raise ValueError("greedy: this model has no max_len of its own, so max_len must be given")
    if limit < 1:
        raise ValueError(f"greedy: max_len must be at least 1, got {max_len}")
    training = model.training
    model.eval()
    try:
        with inference():
            memory, src_mask = model.encode(src)
            ids = xp.full((len(src), 1), bos_id, src.dtype)  # (B, 1)
            ended = xp.zeros(len(src), bool)
            while not bool(ended.all()) and ids.shape[1] <= limit:
                logits = model.output(model.decode(ids, memory, src_mask)[:, -1])  # (B, V)
                logits[:, [bos_id, model.pad_id]] = -xp.inf
                chosen = xp.where(ended, model.pad_id, logits.argmax(-1)).astype(src.dtype)  # (B,)
                ids = xp.concatenate([ids, chosen[:, None]], 1)
                ended |= chosen == eos_id
    finally:
        model.train(training)
    return ids[:, 1:]
