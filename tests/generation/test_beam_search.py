"""Beam search against every text there is, and the ways in which it is usually wrong."""

import itertools
import math

import numpy as np
import pytest

import transformer_np as tnp

V, END = 5, 2


class Tabulated:
    """A model without an encoder whose probabilities are written down: {text so far: {next token: log P}}.

    The tokens that are not named share what is left, so thinly that none of them has a chance.
    """

    pad_id, vocab_size, training, config = None, 100_000, False, {"max_len": None}

    def __init__(self, table):
        self.table = table

    def eval(self):
        return self

    def train(self, training):
        return self

    def decode(self, ids, mask):
        logits = np.empty((len(ids), 1, self.vocab_size))
        for row, out in zip(ids.tolist(), logits[:, 0], strict=True):
            named = self.table.get(tuple(row[1:]), {})
            left = 1 - sum(math.exp(log_p) for log_p in named.values())
            out[:] = math.log(left / (self.vocab_size - len(named)))  # so that all add up to 1
            for token, log_p in named.items():
                out[token] = log_p
        return logits

    def output(self, x):
        return x.copy()


def search(table, **options):
    """Beam search from a prompt of one token: (text as a list, score)."""
    settings = {"beam_size": 2, "max_len": 6, "eos_id": END, "length_rule": "power", "return_scores": True, **options}
    ids, scores = tnp.beam_search(Tabulated(table), np.array([[1]]), **settings)
    ids = ids[0].tolist()
    return ids[: ids.index(END) + 1] if END in ids else ids, scores[0]


# A ends at once with log P -1.0; B has -1.2 after two tokens and ends as the third with -1.25.
A_OR_B = {(): {END: -1.0, 3: -0.6}, (3,): {4: -0.6}, (3, 4): {END: -0.05}}


def test_bp54_a_longer_text_that_still_wins_is_waited_for():
    text, score = search(A_OR_B, length_penalty=1.0)
    assert text == [3, 4, END]
    assert score == pytest.approx(-1.25 / 3, abs=1e-9)
    text, score = search(A_OR_B, length_penalty=0.0)
    assert text == [END]
    assert score == pytest.approx(-1.0, abs=1e-9)


def test_bp54_finished_texts_do_not_grow():
    # After the end the likeliest token of all would follow, if anyone asked.
    text, score = search({**A_OR_B, (END,): {5: -1e-9}, (3, 4, END): {5: -1e-9}}, length_penalty=1.0)
    assert text == [3, 4, END]
    assert score == pytest.approx(-1.25 / 3, abs=1e-9)


def test_bp54_stopping_early_may_miss_it_and_says_so():
    text, _ = search(A_OR_B, length_penalty=1.0, beam_size=1, early_stopping=True)
    assert text == [3, 4, END]  # one beam follows the likeliest token
    text, _ = search({**A_OR_B, (3,): {4: -0.6, END: -0.9}}, length_penalty=1.0, early_stopping=True)
    assert text == [3, END]  # two have ended, so it stops: -1.5 / 2
    text, _ = search({**A_OR_B, (3,): {4: -0.6, END: -0.9}}, length_penalty=1.0)
    assert text == [3, 4, END]


def test_bp55_each_text_is_judged_by_its_own_length():
    # Sums -2 after 2 tokens and -4 after 5: -1.0 against -0.8. With the length of the step, 5, the first would win.
    table = {(): {3: -1.0, 4: -1.0}, (3,): {END: -1.0}, (4,): {4: -1.0}, (4, 4): {4: -0.5}, (4, 4, 4): {4: -0.5}}
    table[(4, 4, 4, 4)] = {END: -1.0}
    text, score = search(table, length_penalty=1.0)
    assert text == [4, 4, 4, 4, END]
    assert score == pytest.approx(-0.8, abs=1e-9)


def test_bp56_the_end_counts_and_the_start_does_not():
    # The rule: new tokens, the end included. [a, b, END], and [a, b, c] cut at three, are both 3 long.
    ended = {(): {3: -0.3}, (3,): {4: -0.4}, (3, 4): {END: -0.5}}
    assert search(ended, length_penalty=1.0, max_len=3) == ([3, 4, END], pytest.approx(-1.2 / 3, abs=1e-9))
    going_on = {(): {3: -0.3}, (3,): {4: -0.4}, (3, 4): {5: -0.5}}
    assert search(going_on, length_penalty=1.0, max_len=3) == ([3, 4, 5], pytest.approx(-1.2 / 3, abs=1e-9))
    gnmt = search(ended, length_penalty=0.6, length_rule="gnmt")[1]
    assert gnmt == pytest.approx(-1.2 / (8 / 6) ** 0.6, abs=1e-9)  # ((5 + 3) / (5 + 1))^0.6


def models():
    rng = np.random.default_rng(5)
    gpt = tnp.GPT(V, 8, 2, 1, max_len=9, dtype="float64").eval()
    translator = tnp.Transformer(V, V, 8, 2, 1, 1, 12, max_len=9, dtype="float64").eval()
    for model in (gpt, translator):
        for p in model.parameters():
            p.data += 0.5 * rng.standard_normal(p.shape)
    return {"decoder only": gpt, "encoder-decoder": translator}


def log_p_of(model, source, text, forbid):
    """log P of one text, from one pass over the whole of it."""
    start = source if isinstance(model, tnp.GPT) else [1]
    ids = np.array([[*start, *text]])
    x = model.forward(ids[:, :-1]) if isinstance(model, tnp.GPT) else model.forward(np.array([source]), ids[:, :-1])
    logits = x[0, len(start) - 1 :]
    logits[:, forbid] = -np.inf
    return sum(row[t] - np.log(np.exp(row).sum()) for row, t in zip(logits, text, strict=True))


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5, -0.5])
@pytest.mark.parametrize("rule", ["gnmt", "power"])
@pytest.mark.parametrize("kind", ["decoder only", "encoder-decoder"])
def test_a_beam_wide_enough_finds_the_best_of_all_texts(kind, rule, alpha):
    model, longest = models()[kind], 4
    forbid = [] if kind == "decoder only" else [1, 0]
    sources = [[3, 1, 4], [4, 4, 2]]
    got, scores = tnp.beam_search(
        model, np.array(sources), 90, alpha, longest, eos_id=END, length_rule=rule, n_best=3, return_scores=True
    )
    allowed = [t for t in range(V) if t not in forbid and t != END]
    texts = [(*t, END) for n in range(longest) for t in itertools.product(allowed, repeat=n)]
    texts += list(itertools.product(allowed, repeat=longest))
    for source, ids, best in zip(sources, got.tolist(), scores, strict=True):
        lp = (lambda n: n**alpha) if rule == "power" else (lambda n: ((5 + n) / 6) ** alpha)
        judged = sorted(((log_p_of(model, source, t, forbid) / lp(len(t)), t) for t in texts), reverse=True)[:3]
        np.testing.assert_allclose(best, [s for s, _ in judged], rtol=1e-12)
        for row, (_, text) in zip(ids, judged, strict=True):
            assert tuple(row[: len(text)]) == text


@pytest.mark.parametrize("kind", ["decoder only", "encoder-decoder"])
@pytest.mark.parametrize("beam_size", [1, 2, 4])
def test_a_batch_gives_what_each_sentence_gives_alone_cached_or_not(kind, beam_size):
    model = models()[kind]
    rng = np.random.default_rng(6)
    source = rng.integers(1, V, (6, 5))
    mask = np.arange(5) < np.array([5, 2, 4, 1, 3, 5])[:, None]
    options = {"beam_size": beam_size, "max_len": 5, "eos_id": END, "return_scores": True}
    ids, scores = tnp.beam_search(model, source, mask=mask, **options)
    again, scores_again = tnp.beam_search(model, source, mask=mask, cache=False, **options)
    np.testing.assert_array_equal(ids, again)
    np.testing.assert_allclose(scores, scores_again, rtol=1e-12)
    for i in range(6):
        alone, score = tnp.beam_search(model, source[i : i + 1, mask[i]], **options)
        np.testing.assert_array_equal(ids[i, : alone.shape[1]], alone[0])
        np.testing.assert_allclose(scores[i], score[0], rtol=1e-12)


def test_one_beam_without_penalty_is_greedy():
    for model in models().values():
        source = np.random.default_rng(7).integers(1, V, (5, 4))
        greedy = tnp.greedy(model, source, max_len=5, eos_id=END)
        beam = tnp.beam_search(model, source, 1, 0.0, max_len=5, eos_id=END, early_stopping=True)
        np.testing.assert_array_equal(beam, greedy)


def test_of_equally_likely_tokens_the_first_is_taken():
    """A model that knows nothing: greedy decoding takes token 0, and so does a search; then come 1 and 2."""
    model = models()["decoder only"]
    model.output.weight.data[:] = 0
    ids = tnp.beam_search(model, np.array([[3, 1]]), 3, 0.0, max_len=1, n_best=3)
    assert ids.tolist() == [[[0], [1], [2]]]


def test_fewer_texts_than_asked_for():
    """Two tokens may come, so there are two texts of one token; the third has nothing in it."""
    model = models()["decoder only"]
    ids, scores = tnp.beam_search(
        model, np.array([[3, 1]]), 4, max_len=1, n_best=3, eos_id=END, forbid=(0, 1, 3), return_scores=True
    )
    assert sorted(ids[0, :2, 0].tolist()) == [2, 4]
    assert ids[0, 2].tolist() == [END if model.pad_id is None else model.pad_id]
    assert np.isfinite(scores).tolist() == [[True, True, False]]


def test_no_end_at_all():
    model = models()["decoder only"]
    ids = tnp.beam_search(model, np.array([[3, 1]]), 3, max_len=4, eos_id=None)
    assert ids.shape == (1, 4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"beam_size": 0}, "beam_size must be an integer of at least 1, got 0"),
        ({"beam_size": 2.0}, "beam_size must be an integer"),
        ({"n_best": 6}, "n_best 6 is more than beam_size 5"),
        ({"length_penalty": float("nan")}, "length_penalty must be a number from -50 to 50, got nan"),
        ({"length_rule": "mean"}, 'length_rule must be "gnmt" or "power"'),
        ({"max_len": 0}, "max_len must be at least 1, got 0"),
        ({"length_penalty": -1e4, "length_rule": "power"}, "length_penalty must be a number from -50 to 50"),
        ({"early_stopping": "never"}, "early_stopping must be True or False, which never misses a winner, got 'never'"),
        ({"eos_id": [1, 2]}, r"eos_id must be an id, 0 to 4, got \[1, 2\]"),
    ],
)
def test_refusals(options, words):
    with pytest.raises(ValueError, match=words):
        tnp.beam_search(models()["decoder only"], np.array([[3, 1]]), **options)
