"""Using a trained translator: text in, text out, and how often it is right."""

import numpy as np

from ..backend import module_named, to_numpy
from ..data import Batches
from ..generation import greedy


def translate(model, source_tokenizer, target_tokenizer, texts, max_len=None, device="numpy", batch_size=500):
    """Translate texts greedily; return a list of texts. Raises ValueError for an empty text."""
    sources = [_ids_of(text, source_tokenizer) for text in texts]
    batches = Batches(sources, [[]] * len(sources), batch_size, shuffle=False)
    xp = module_named(device)
    translations = []
    for src, _, _ in batches.epoch():
        ids = to_numpy(greedy(model, xp.asarray(src), max_len))  # (B, T)
        translations += [target_tokenizer.decode(row) for row in ids]
    return translations


def _ids_of(text, tokenizer):
    ids = tokenizer.encode(text.strip())
    if not ids:
        raise ValueError(f"there is nothing to translate: the text {text!r} is empty")
    return ids


def attention_of(model, source_tokenizer, target_tokenizer, text, device="numpy"):
    """Translate one text, then look at it once more with the whole translation as target.

    Return (source tokens, target tokens, weights), with the cross-attention weights of the last decoder layer (H, T,
    S): row t says where the model looked while it wrote token t, the end token included. Raises ValueError for an empty
    text.
    """
    xp = module_named(device)
    src = xp.asarray(np.array([_ids_of(text, source_tokenizer)]))  # (1, S)
    out = greedy(model, src)  # (1, T)
    bos = xp.full((1, 1), target_tokenizer.vocabulary.bos, out.dtype)
    training = model.training
    model.eval()
    try:
        model.forward(src, xp.concatenate([bos, out[:, :-1]], 1))
    finally:
        model.train(training)
        model.forget()
    weights = to_numpy(model.decoder.layers[-1].cross_attention.weights)[0]  # (H, T, S)
    source = source_tokenizer.vocabulary.decode(to_numpy(src)[0])
    target = target_tokenizer.vocabulary.decode(to_numpy(out)[0])
    return source, target, weights
