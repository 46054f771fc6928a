"""Beam search: follow the most likely texts side by side, and take the best one that has ended."""

import math
import numbers

import numpy as np

from ..backend import array_module, widen
from .greedy import end_id
from .writing import Text, at_rest, fill_id

LENGTH_RULES = {
    "gnmt": lambda n, alpha: ((5 + n) / 6) ** alpha,
    "power": lambda n, alpha: n**alpha,
}


def beam_search(
    model,
    src,
    beam_size=5,
    length_penalty=0.6,
    max_len=None,
    bos_id=1,
    eos_id="default",
    *,
    length_rule="gnmt",
    early_stopping=False,
    n_best=None,
    return_scores=False,
    mask=None,
    cache=True,
    forbid=None,
):
    """Write on from src (B, S) and return the best ids found, (B, T').

    `beam_size` texts M are followed for each sentence. At every step, of all their continuations the best M that go on
    are followed further; those among the best M that end are finished. Texts without an end at `max_len` tokens are
    finished there. The winner is the finished text with the highest score
        log P(text) / lp(n),   "gnmt": lp(n) = ((5 + n) / 6)^alpha,   "power": lp(n) = n^alpha,
    alpha = length_penalty; n counts the new tokens: the end counts, `bos_id` and the prompt do not. With alpha = 0 that
    is the likeliest text, with "power" and alpha = 1 the best mean.
    The search for a sentence stops when no text still followed can win, however it goes on: its log P can only fall,
    and lp is at most lp(max_len). early_stopping=True stops at M finished texts: faster, but it may miss the winner.
    n_best: return that many texts for each sentence, best first, (B, n_best, T'). return_scores: return (ids, scores).
    The other arguments are those of `greedy`; ids after the end are `model.pad_id` (the end, where there is none).
    Raises ValueError for settings and input that do not fit.
    Source: Wu et al. 2016, section 7 and equation 14; the paper, section 6.1, has M = 4 and alpha = 0.6.
    """
    n_results = 1 if n_best is None else n_best
    check_search(beam_size, n_results, length_penalty, length_rule, early_stopping)
    with at_rest(model):
        text = Text("beam_search", model, src, mask, max_len, bos_id, cache, forbid)
        eos_id = end_id("beam_search", model, eos_id)

        def score(log_p, n):
            return log_p / LENGTH_RULES[length_rule](n, length_penalty)

        search = Search(text, beam_size, n_results, score, eos_id, early_stopping)
        while not search.step():
            pass
    ids, scores = search.best()
    if n_best is None:
        ids, scores = ids[:, 0], scores[:, 0]
    return (ids, scores) if return_scores else ids


def check_search(beam_size, n_results, length_penalty, length_rule, early_stopping):
    """Raise unless the settings make sense."""
    for name, n in (("beam_size", beam_size), ("n_best", n_results)):
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
            raise ValueError(f"beam_search: {name} must be an integer of at least 1, got {n!r}")
    if not isinstance(length_penalty, numbers.Real) or not -50 <= length_penalty <= 50:  # lp(n) stays a finite number
        raise ValueError(f"beam_search: length_penalty must be a number from -50 to 50, got {length_penalty!r}")
    if n_results > beam_size:
        raise ValueError(f"beam_search: n_best {n_results} is more than beam_size {beam_size}")
    if length_rule not in LENGTH_RULES:
        raise ValueError(f'beam_search: length_rule must be "gnmt" or "power", got {length_rule!r}')
    if not isinstance(early_stopping, (bool, np.bool_)):
        raise ValueError(
            f"beam_search: early_stopping must be True or False, which never misses a winner, got {early_stopping!r}"
        )


class Search:
    """The state of a beam search: M texts followed and M finished ones (at most) for each of B sentences."""

    def __init__(self, text, beam_size, n_results, score, eos_id, early_stopping):
        self.text, self.score, self.eos_id, self.early_stopping = text, score, eos_id, early_stopping
        self.n_sentences, self.beam_size, self.n_results = len(text.ids), beam_size, n_results
        xp = array_module(text.ids)
        self.sentences = xp.arange(self.n_sentences)[:, None]  # (B, 1): x[sentences, i] picks from each row of x
        # All M texts begin alike. So at first only one counts, else the M best would be M times the same.
        self.log_p = xp.full((self.n_sentences, beam_size), -xp.inf)  # (B, M)
        self.log_p[:, 0] = 0
        self.finished_scores = xp.full((self.n_sentences, beam_size), -xp.inf)  # (B, M), best first
        self.finished_ids = xp.full((self.n_sentences, beam_size, text.max_len), fill_id(text.model, eos_id))
        self.finished_lengths = xp.zeros((self.n_sentences, beam_size), int)
        self.done = xp.zeros(self.n_sentences, bool)

    def step(self):
        """Grow every text by one token; return whether the search is over."""
        xp, text = array_module(self.log_p), self.text
        logits = widen(text.next_logits())  # (B, V) at first, then (B*M, V)
        if text.n_new == 0:
            text.keep_rows(xp.arange(self.n_sentences).repeat(self.beam_size))
            logits = logits.repeat(self.beam_size, 0)  # (B*M, V)
        # log P(text and token) = log P(text) + logit - log of the sum of exp(logits). The best 2 M of all continuations
        # are among the best 2 M of each text; and of those at most M end, one for each text, so M go on.
        top, tokens = largest(logits, 2 * self.beam_size)  # (B*M, k), k = 2 M or V
        log_p = (self.log_p.reshape(-1, 1) - log_sum_exp(logits)) + top  # (B*M, k) in float64
        n_offers = self.beam_size * top.shape[1]  # M k
        log_p, best = largest(log_p.reshape(self.n_sentences, n_offers), 2 * self.beam_size)  # (B, 2M)
        parents, tokens = best // top.shape[1], tokens.reshape(self.n_sentences, n_offers)[self.sentences, best]

        n = text.n_new + 1
        ends = xp.zeros(tokens.shape, bool) if self.eos_id is None else tokens == self.eos_id
        if n == text.max_len:
            ends[:] = True
        finishes = ends & (xp.arange(ends.shape[1]) < self.beam_size) & ~self.done[:, None]
        if bool(finishes.any()):
            self._finish(finishes, log_p, parents, tokens, n)

        going = xp.argsort(ends, axis=1, kind="stable")[:, : self.beam_size]  # (B, M): the best that do not end
        self.log_p = xp.where(ends, -xp.inf, log_p)[self.sentences, going]
        rows = parents[self.sentences, going] + self.beam_size * self.sentences
        text.keep_rows(rows.reshape(-1))
        text.append(tokens[self.sentences, going].reshape(-1))
        self.done |= self._decided()
        return n == text.max_len or bool(self.done.all())

    def _finish(self, finishes, log_p, parents, tokens, n):
        """Put the continuations that finish, (B, 2M) True, among the finished texts, of which the best M stay."""
        xp = array_module(log_p)
        ids = xp.full((*tokens.shape, self.text.max_len), fill_id(self.text.model, self.eos_id))  # (B, 2M, max_len)
        written = self.text.ids[:, self.text.n_start :].reshape(self.n_sentences, self.beam_size, n - 1)
        ids[..., : n - 1] = written[self.sentences, parents]
        ids[..., n - 1] = tokens
        scores = xp.where(finishes, self.score(log_p, n), -xp.inf)
        scores = xp.concatenate([self.finished_scores, scores], 1)  # (B, 3M)
        self.finished_scores, kept = largest(scores, self.beam_size)
        ids = xp.concatenate([self.finished_ids, ids], 1)
        self.finished_ids = ids[self.sentences, kept]
        lengths = xp.concatenate([self.finished_lengths, xp.full(tokens.shape, n)], 1)
        self.finished_lengths = lengths[self.sentences, kept]

    def _decided(self):
        """(B,): whether no text that is still followed can be among the results any more."""
        if self.early_stopping:
            return self.finished_scores[:, -1] > -math.inf
        # log P is at most 0, so the better of the shortest and the longest end bounds what the score can become.
        n = self.text.n_new
        log_p = self.log_p[:, 0]
        bound = array_module(log_p).maximum(self.score(log_p, n + 1), self.score(log_p, self.text.max_len))
        return self.finished_scores[:, self.n_results - 1] >= bound

    def best(self):
        """Return the ids (B, n_results, T') and scores (B, n_results) of the best finished texts.

        Where there are fewer texts than that, the rest have the score -inf and nothing but what fills up.
        """
        xp, scores = array_module(self.log_p), self.finished_scores[:, : self.n_results]
        found = scores > -xp.inf
        longest = int(xp.where(found, self.finished_lengths[:, : self.n_results], 0).max())
        ids = self.finished_ids[:, : self.n_results, :longest].astype(self.text.ids.dtype)
        return xp.where(found[..., None], ids, int(fill_id(self.text.model, self.eos_id))), scores


def largest(x, k):
    """Return the k largest of each row of x (N, L), in falling order, and where they stand; of equals the first.

    One after the other: k is small, and to find the largest takes a fraction of the time that any sorting takes. Where
    a row has fewer than k above -inf, the rest are -inf, wherever they stand.
    """
    xp, k = array_module(x), min(k, x.shape[1])
    left, rows = x.copy(), xp.arange(len(x))
    values, places = xp.empty((len(x), k), x.dtype), xp.empty((len(x), k), int)
    for i in range(k):
        places[:, i] = here = left.argmax(1)  # the first of equals
        values[:, i] = left[rows, here]
        left[rows, here] = -xp.inf
    return values, places


def log_sum_exp(x):
    """Return log(sum(exp(x))) along the last axis, kept with size 1, in float64: x - that is log(softmax(x))."""
    xp = array_module(x)
    top = x.max(-1, keepdims=True)
    terms = x - top
    xp.exp(terms, out=terms)
    return top + xp.log(terms.sum(-1, keepdims=True).astype("float64"))
