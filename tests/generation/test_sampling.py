"""Sampling: the right probabilities, worked out by hand and beside Hugging Face; the right frequencies; the same text
for the same seed."""

import math

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.generation.sampling import draw, penalise_repetition, probabilities

V = 11


def gpt(**options):
    model = tnp.GPT(V, 12, 3, 2, max_len=40, **{"dtype": "float64", **options})
    rng = np.random.default_rng(1)
    for p in model.parameters():
        p.data += 0.4 * rng.standard_normal(p.shape).astype(p.data.dtype)
    return model


class Fixed:
    """A model without an encoder that gives the same logits always."""

    pad_id, training, config = None, False, {"max_len": None}

    def __init__(self, logits):
        self.logits, self.vocab_size = np.asarray(logits, "float64"), len(logits)

    def eval(self):
        return self

    def train(self, training):
        return self

    def decode(self, ids, mask):
        return np.broadcast_to(self.logits, (*ids.shape, self.vocab_size))

    def output(self, x):
        return x.copy()


PROMPT = np.array([[0, 1, 2]])


def test_bp57_temperature_0_takes_the_most_likely_and_below_0_is_refused():
    model = Fixed([1, 2, 0])
    for seed in range(3):
        np.testing.assert_array_equal(tnp.sample(model, PROMPT, temperature=0, max_len=5, seed=seed), [[1] * 5])
    for wrong in (-0.1, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="temperature must be 0"):
            tnp.sample(model, PROMPT, temperature=wrong, max_len=5)
    # A temperature so small that logits / temperature overflow would be NaN: it is nearly 0, and so is what it does.
    np.testing.assert_array_equal(tnp.sample(model, PROMPT, temperature=1e-320, max_len=5, seed=0), [[1] * 5])


def test_bp57_top_k_may_be_larger_than_the_vocabulary():
    model = Fixed([1, 2, 0])
    all_of_them = tnp.sample(model, PROMPT, max_len=30, seed=0)
    np.testing.assert_array_equal(tnp.sample(model, PROMPT, top_k=1000, max_len=30, seed=0), all_of_them)
    assert set(all_of_them[0].tolist()) == {0, 1, 2}


def test_probabilities_by_hand():
    logits = np.log([[0.5, 0.25, 0.125, 0.125]])
    np.testing.assert_allclose(probabilities(logits), [[0.5, 0.25, 0.125, 0.125]])
    np.testing.assert_allclose(probabilities(logits, temperature=0.5)[0], np.array([16, 4, 1, 1]) / 22)
    np.testing.assert_allclose(probabilities(logits, top_k=2), [[2 / 3, 1 / 3, 0, 0]])
    np.testing.assert_allclose(probabilities(logits, top_p=0.6), [[2 / 3, 1 / 3, 0, 0]])  # 0.5 is not enough
    np.testing.assert_allclose(probabilities(logits, top_p=0.4), [[1, 0, 0, 0]])
    np.testing.assert_allclose(probabilities(logits, top_p=1e-9), [[1, 0, 0, 0]])
    np.testing.assert_allclose(probabilities(logits, top_p=0.8), np.array([[4, 2, 1, 0]]) / 7)
    np.testing.assert_allclose(probabilities(logits, top_k=2, top_p=0.6), [[1, 0, 0, 0]])  # of 2/3 and 1/3
    np.testing.assert_allclose(probabilities(np.array([[0, -np.inf, 0]])), [[0.5, 0, 0.5]])


def test_a_repeated_token_is_penalised_once():
    logits = np.array([[2.0, -2.0, 1.0, 0.5]])
    got = penalise_repetition(logits, np.array([[0, 1, 0]]), 2.0)
    np.testing.assert_array_equal(got, [[1, -4, 1, 0.5]])
    np.testing.assert_array_equal(logits, [[2, -2, 1, 0.5]])  # not in place


def test_what_stands_at_padding_does_not_count_as_repeated():
    model = gpt()
    prompt, mask = np.array([[4, 5, 3, 1]]), np.array([[False, False, True, True]])
    options = {"temperature": 0, "repetition_penalty": 5.0, "max_len": 12}
    alone = tnp.sample(model, prompt[:, 2:], **options)
    for other in (4, 7):
        prompt[0, :2] = other
        np.testing.assert_array_equal(tnp.sample(model, prompt, mask=mask, **options), alone)


def test_beside_hugging_face():
    torch = pytest.importorskip("torch")
    process = pytest.importorskip("transformers.generation.logits_process")
    rng = np.random.default_rng(2)
    logits, ids = 3 * rng.standard_normal((20, 50)), rng.integers(0, 50, (20, 6))
    for temperature, top_k, top_p, penalty in ((0.7, 10, 0.8, 1.3), (1.5, 3, 0.5, 0.9), (1.0, 50, 0.95, 1.0)):
        chain = process.LogitsProcessorList(
            [
                process.RepetitionPenaltyLogitsProcessor(penalty),
                process.TemperatureLogitsWarper(temperature),
                process.TopKLogitsWarper(top_k),
                process.TopPLogitsWarper(top_p),
            ]
        )
        expected = torch.softmax(chain(torch.tensor(ids), torch.tensor(logits)), -1).numpy()
        got = probabilities(penalise_repetition(logits, ids, penalty), temperature, top_k, top_p)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=0)


def chi_square(counts, p):
    """The statistic and how many standard deviations it lies from its mean, L - 1, for the entries with p > 0."""
    expected = counts.sum() * p[p > 0]
    statistic = ((counts[p > 0] - expected) ** 2 / expected).sum()
    freedom = len(expected) - 1
    return (statistic - freedom) / math.sqrt(2 * freedom)


@pytest.mark.parametrize(
    "settings",
    [{}, {"temperature": 0.6}, {"temperature": 2.0, "top_k": 5}, {"top_p": 0.7}, {"repetition_penalty": 1.5}],
    ids=str,
)
def test_frequencies(settings):
    # 20,000 texts of one token, all from the same prompt. By chance a statistic passes 4 deviations once in some 1000.
    model = gpt()
    logits = model.eval().forward(PROMPT)[:, -1]
    settings = dict(settings)
    penalty = settings.pop("repetition_penalty", 1.0)
    p = probabilities(penalise_repetition(logits, PROMPT, penalty), **settings)[0]
    prompts = PROMPT.repeat(20_000, 0)
    chosen = tnp.sample(model, prompts, **settings, repetition_penalty=penalty, max_len=1, seed=3)[:, 0]
    counts = np.bincount(chosen, minlength=V)
    assert counts[p == 0].sum() == 0
    assert chi_square(counts, p) < 4
    if not settings:  # and the test can fail: it sees probabilities that are a tenth off
        wrong = p * np.where(np.arange(V) % 2, 1.1, 1)
        assert chi_square(counts, wrong / wrong.sum()) > 4


def test_pairs_of_tokens_have_the_probability_of_the_text():
    # P(a, b) = P(a) P(b | a): what comes second was drawn from what the model says after the first.
    model = gpt()
    first = probabilities(model.eval().forward(PROMPT)[:, -1])[0]
    after = np.array([[0, 1, 2, a] for a in range(V)])
    second = probabilities(model.forward(after)[:, -1])
    chosen = tnp.sample(model, PROMPT.repeat(20_000, 0), max_len=2, seed=4)
    counts = np.bincount(chosen[:, 0] * V + chosen[:, 1], minlength=V * V)
    assert chi_square(counts, (first[:, None] * second).ravel()) < 4


def test_draw_never_takes_what_is_impossible():
    p = np.array([[0.0, 0.5, 0.0, 0.5]]).repeat(5000, 0)
    assert set(draw(p, np.random.default_rng(5)).tolist()) == {1, 3}


def test_seeds():
    model = gpt()
    text = tnp.sample(model, PROMPT, max_len=20, seed=7)
    np.testing.assert_array_equal(tnp.sample(model, PROMPT, max_len=20, seed=7), text)
    np.testing.assert_array_equal(tnp.sample(model, PROMPT, max_len=20, seed=7, cache=False), text)
    assert (tnp.sample(model, PROMPT, max_len=20, seed=8) != text).any()
    state = np.random.get_state()[1].copy()  # noqa: NPY002 (the global generator, which must stay as it was)
    tnp.sample(model, PROMPT, max_len=3)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_float32_and_an_end():
    model = gpt(dtype="float32", pad_id=0)
    got = tnp.sample(model, np.array([[3, 4], [5, 0], [6, 7]]), eos_id=2, seed=0)
    assert got.dtype == np.int64
    assert got.shape[1] <= 39  # 40 positions: the prompt's 2, and all new tokens but the last
    for row in got.tolist():
        if 2 in row:
            assert set(row[row.index(2) + 1 :]) <= {0}
            row = row[: row.index(2)]
        assert 0 not in row  # padding is never chosen


def test_an_encoder_decoder_can_be_sampled_too():
    model = tnp.Transformer(V, V, 12, 3, 1, 1, 16, max_len=12, dtype="float64")
    src = np.array([[3, 4, 5], [6, 0, 0]])
    got = tnp.sample(model, src, seed=0)
    np.testing.assert_array_equal(tnp.sample(model, src, seed=0, cache=False), got)
    np.testing.assert_array_equal(tnp.sample(model, src, temperature=0), tnp.greedy(model, src))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"top_k": 0}, "top_k must be an integer of at least 1, or None, got 0"),
        ({"top_k": 2.5}, "top_k must be an integer"),
        ({"top_p": 0}, "top_p must be greater than 0 and at most 1, or None, got 0"),
        ({"top_p": 1.1}, "top_p must be greater than 0 and at most 1"),
        ({"repetition_penalty": 0}, "repetition_penalty must be positive, got 0"),
        ({"max_len": 0}, "max_len must be at least 1, got 0"),
        ({"mask": np.array([[1, 1, 1]])}, "mask must be boolean of shape"),
        ({"mask": np.array([[False] * 3])}, "needs at least one token that is no padding"),
        ({"max_len": 50}, "passes max_len 40"),
    ],
)
def test_refusals(settings, words):
    model = gpt().train()
    with pytest.raises(ValueError, match=words):
        tnp.sample(model, PROMPT, **settings)
    assert model.training
    with pytest.raises(IndexError, match=r"prompt: id 11 is outside 0\.\.10"):
        tnp.sample(model, np.array([[11]]))
