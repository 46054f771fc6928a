"""Sampling: draw the next token from the model's probabilities, sharpened or cut as one likes."""

import numpy as np

from ..backend import array_module
from .greedy import end_id
from .writing import Text, at_rest, write


def sample(
    model,
    prompt,
    temperature=1.0,
    top_k=None,
    top_p=None,
    repetition_penalty=1.0,
    seed=None,
    *,
    max_len=None,
    bos_id=1,
    eos_id="default",
    mask=None,
    cache=True,
    forbid=None,
):
    """Write on from the prompt (B, T) by drawing each token from `probabilities`; return the new ids (B, T').

    temperature: below 1 likely tokens become likelier, above 1 less so; 0 always takes the most likely one.
    top_k: draw from the k most likely tokens only. top_p: from the fewest that together reach this probability.
    repetition_penalty: above 1 tokens that are in the text already become less likely.
    The same `seed` gives the same text. The other arguments are those of `greedy`.
    Raises ValueError for settings that make no sense: a temperature below 0, top_k below 1, top_p outside 0..1, a
    repetition_penalty that is not positive. A top_k larger than the vocabulary is no error: then all may come.
    """
    check_settings(temperature, top_k, top_p, repetition_penalty)
    rng = np.random.default_rng(seed)

    def choose(logits, ids):
        logits = penalise_repetition(logits, ids, repetition_penalty)
        if temperature == 0:
            return logits.argmax(-1)
        return draw(probabilities(logits, temperature, top_k, top_p), rng)

    with at_rest(model):
        text = Text("sample", model, prompt, mask, max_len, bos_id, cache, forbid)
        return write(text, choose, end_id("sample", model, eos_id))


def check_settings(temperature, top_k, top_p, repetition_penalty):
    """Raise ValueError unless each setting makes sense."""
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"sample: temperature must be 0 (always the most likely token) or more, got {temperature!r}")
    if top_k is not None and (isinstance(top_k, bool) or not isinstance(top_k, (int, np.integer)) or top_k < 1):
        raise ValueError(f"sample: top_k must be an integer of at least 1, or None, got {top_k!r}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"sample: top_p must be greater than 0 and at most 1, or None, got {top_p!r}")
    if not repetition_penalty > 0:
        raise ValueError(f"sample: repetition_penalty must be positive, got {repetition_penalty!r}")


def penalise_repetition(logits, ids, penalty):
    """Return logits (N, V) in which the tokens of `ids` (N, T) are less likely: divided by the penalty, or times it
    where they are negative. Source: Keskar et al. 2019 (CTRL), section 4.1.
    """
    if penalty == 1:
        return logits
    xp, logits = array_module(logits), logits.copy()
    rows = xp.arange(len(ids))[:, None]
    seen = logits[rows, ids]  # (N, T)
    logits[rows, ids] = xp.where(seen > 0, seen / penalty, seen * penalty)
    return logits


def probabilities(logits, temperature=1.0, top_k=None, top_p=None):
    """Return softmax(logits / temperature) (N, V) in float64, cut to the top_k tokens, of these to the top_p.

    top_p keeps the fewest tokens that add up to at least p: the nucleus of Holtzman et al. 2019, section 3.1.
    """
    xp = array_module(logits)
    logits = logits.astype("float64")  # (N, V)
    logits -= logits.max(-1, keepdims=True)
    with np.errstate(over="ignore"):  # at a tiny temperature all but the largest become -inf, as they should
        logits /= temperature
    if top_k is not None and top_k < logits.shape[-1]:
        logits[logits < -xp.partition(-logits, top_k - 1, axis=-1)[:, top_k - 1 : top_k]] = -xp.inf
    p = xp.exp(logits)
    p /= p.sum(-1, keepdims=True)
    if top_p is not None and top_p < 1:
        rows, order = xp.arange(len(p))[:, None], xp.argsort(-p, axis=-1, kind="stable")
        ordered = p[rows, order]
        before = ordered.cumsum(-1) - ordered  # what the likelier tokens add up to
        p[rows, order] = xp.where(before < top_p, ordered, 0)
        p /= p.sum(-1, keepdims=True)
    return p


def draw(p, rng):
    """Draw a token from each row of p (N, V): the one whose clock, of rate p, rings first."""
    times = array_module(p).asarray(rng.standard_exponential(p.shape))
    return (p / times).argmax(-1)  # (N,)
