"""Greedy decoding against a model whose logits are written down, and against the plainest loop."""

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.module import is_inference

PAD, BOS, EOS = 0, 1, 2


class Scripted:
    """An encoder-decoder whose most likely tokens are known: `favourites[t]` lists ids at position t, best first.

    A sentence whose first source id is s gets the favourites of script s.
    """

    pad_id = PAD

    def __init__(self, scripts, vocab_size=8, max_len=6):
        self.config = {"max_len": max_len}
        self.src_embedding = type("Embedding", (), {"vocab_size": vocab_size})()
        self.scripts, self.vocab_size = scripts, vocab_size
        self.training, self.modes, self.seen = True, [], []

    def train(self, training=True):
        self.training = training
        return self

    def eval(self):
        return self.train(False)

    def encode(self, src):
        return src, src != PAD

    def decode(self, ids, memory, src_mask):
        self.modes.append((self.training, is_inference()))
        self.seen.append(ids.copy())
        logits = np.zeros((*ids.shape, self.vocab_size))
        for b, source in enumerate(memory[:, 0].tolist()):
            for t in range(ids.shape[1]):
                for rank, favourite in enumerate(self.scripts[source][t]):
                    logits[b, t, favourite] = 10 - rank
        return logits

    def output(self, x):
        return x.copy()


def test_the_most_likely_token_at_every_step():
    model = Scripted({3: [[5], [4], [6], [EOS]]})
    np.testing.assert_array_equal(tnp.greedy(model, np.array([[3, 7]])), [[5, 4, 6, EOS]])
    np.testing.assert_array_equal(model.seen[-1], [[BOS, 5, 4, 6]])  # what it wrote is what it reads
    assert model.modes == [(False, True)] * 4  # no dropout, nothing kept


def test_bos_and_padding_are_never_chosen():
    model = Scripted({3: [[PAD, BOS, 5], [BOS, PAD, 4], [PAD, EOS]]})
    np.testing.assert_array_equal(tnp.greedy(model, np.array([[3]])), [[5, 4, EOS]])


def test_each_sentence_ends_by_itself():
    model = Scripted({3: [[EOS], [7], [7]], 4: [[5], [5], [EOS]], 5: [[6], [EOS], [7]]})
    got = tnp.greedy(model, np.array([[3], [4], [5]]))
    np.testing.assert_array_equal(got, [[EOS, PAD, PAD], [5, 5, EOS], [6, EOS, PAD]])
    assert len(model.seen) == 3  # it stops when all have ended


def test_max_len():
    model = Scripted({3: [[5]] * 6})
    assert tnp.greedy(model, np.array([[3]])).tolist() == [[5] * 6]  # the model's limit
    assert tnp.greedy(model, np.array([[3]]), max_len=2).tolist() == [[5, 5]]
    with pytest.raises(ValueError, match="max_len must be at least 1, got 0"):
        tnp.greedy(model, np.array([[3]]), max_len=0)
    model.config["max_len"] = None
    with pytest.raises(ValueError, match="max_len must be given"):
        tnp.greedy(model, np.array([[3]]))


def test_other_special_ids():
    model = Scripted({3: [[1, 5], [2, 6], [7]]})
    got = tnp.greedy(model, np.array([[3]]), bos_id=5, eos_id=7)
    np.testing.assert_array_equal(got, [[1, 2, 7]])
    assert (model.seen[0] == 5).all()


def untrained(**options):
    model = tnp.Transformer(9, 8, 12, 3, 2, 2, 20, dropout=0.4, max_len=10, seed=1, dtype="float64", **options)
    model.output.bias.data[EOS] = 0.4  # so that sentences end at different lengths
    return model


def naive(model, row, limit):
    """One sentence without its padding, the whole model anew for every token."""
    ids = [BOS]
    while len(ids) <= limit and ids[-1] != EOS:
        logits = model.forward(row[None, row != PAD], np.array([ids]))[0, -1]
        order = [i for i in np.argsort(-logits).tolist() if i not in (PAD, BOS)]
        ids.append(order[0])
    return ids[1:]


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_equals_the_plainest_loop_alone_and_in_a_batch(norm, positions):
    model = untrained(norm=norm, positions=positions)
    rng = np.random.default_rng(2)
    src = rng.integers(3, 9, (8, 6))
    for i in range(8):
        src[i, 1 + i % 6 :] = PAD
    got = tnp.greedy(model, src)
    model.eval()
    lengths = set()
    for row, ids in zip(src, got.tolist(), strict=True):
        expected = naive(model, row, 10)
        lengths.add(len(expected))
        assert ids == expected + [PAD] * (got.shape[1] - len(expected))
        assert tnp.greedy(model, row[None]).tolist()[0] == expected
    assert len(lengths) > 2  # the comparison met sentences of different lengths


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_comes_back_even_after_an_error(training):
    model = untrained().train(training)
    tnp.greedy(model, np.array([[3, 4]]))
    assert all(part.training is training for _, part in model.named_modules())

    def broken(x):
        raise RuntimeError("broken on purpose")

    model.output.forward = broken
    with pytest.raises(RuntimeError, match="broken on purpose"):
        tnp.greedy(model, np.array([[3, 4]]))
    assert all(part.training is training for _, part in model.named_modules())
    assert not is_inference()


def test_a_part_at_rest_stays_at_rest():
    """An encoder without dropout, a decoder with it: as one trains a decoder on an encoder that is ready."""
    model = untrained()
    model.encoder.eval()
    modes = [part.training for _, part in model.named_modules()]
    tnp.greedy(model, np.array([[3, 4]]))
    assert [part.training for _, part in model.named_modules()] == modes
    assert len(set(modes)) == 2


def test_nothing_is_kept():
    model = untrained()
    tnp.greedy(model, np.array([[3, 4]]))
    assert all(part._saved is None for _, part in model.named_modules())
    with pytest.raises(RuntimeError, match="call forward first"):
        model.backward(np.zeros((1, 1, 8)))
    assert not any(p.has_grad for p in model.parameters())


def uncertain(name, **options):
    """A translator with larger weights, so that texts vary, that likes the padding id."""
    sizes = {"d_model": 12, "max_len": 12, "seed": 2, "dtype": "float64", **options}
    if name == "rnn":
        model = tnp.Seq2SeqRNN(9, 8, **sizes)
    else:
        model = tnp.Transformer(9, 8, n_heads=2, n_encoder_layers=1, n_decoder_layers=1, d_ff=8, **sizes)
    rng = np.random.default_rng(3)
    for p in model.parameters():
        p.data += 0.5 * rng.standard_normal(p.shape)
    model.output.bias.data[PAD] += 4
    return model


@pytest.mark.parametrize("name", ["transformer", "rnn"])
def test_all_that_is_written_is_text_even_where_it_is_the_padding_id(name):
    """With a cache and without: each next token is that of the whole model, told that every token is real."""
    model, src = uncertain(name), np.random.default_rng(4).integers(1, 9, (5, 4))
    options = {"max_len": 8, "bos_id": PAD, "eos_id": None, "forbid": ()}
    got = tnp.greedy(model, src, **options)
    np.testing.assert_array_equal(tnp.greedy(model, src, cache=False, **options), got)
    assert (got == PAD).any()
    text = np.concatenate([np.full((5, 1), PAD), got[:, :-1]], 1)
    logits = model.eval().forward(src, text, tgt_mask=np.ones(text.shape, bool))
    np.testing.assert_array_equal(logits.argmax(-1), got)


def test_ids_of_a_small_type_do_not_limit_what_can_be_written():
    """A byte holds the ids of this source, but not those of the target."""
    model = tnp.Transformer(9, 400, 12, 3, 1, 1, 20, max_len=10, dtype="float64")
    model.output.bias.data[300:] = 9
    src = np.array([[3, 4, 5]], "uint8")
    got = tnp.greedy(model, src)
    assert (got >= 300).all()
    np.testing.assert_array_equal(got, tnp.greedy(model, src.astype("int64")))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"eos_id": [2, 3]}, r"eos_id must be an id, 0 to 7, got \[2, 3\]"),
        ({"eos_id": 8}, "eos_id must be an id, 0 to 7, got 8"),
        ({"bos_id": -1}, "bos_id must be an id, 0 to 7, got -1"),
        ({"forbid": [2, -1]}, "forbid must be an id, 0 to 7, got -1"),
        ({"forbid": range(8)}, "forbid leaves no token to choose from"),
        ({"max_len": 2.5}, "max_len must be at least 1, got 2.5"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(ValueError, match=words):
        tnp.greedy(untrained(), np.array([[3, 4]]), **options)


def test_models_that_write_no_text():
    with pytest.raises(TypeError, match="got a BERT, which has no decode and so writes no text"):
        tnp.greedy(tnp.BERT(9, 4, 2, 1, 6), np.array([[3, 4]]))


def test_without_padding_nothing_is_forbidden_for_it():
    model = tnp.T5(9, 12, 3, 1, 1, 20, 4, pad_id=None, max_len=9)
    assert tnp.greedy(model, np.array([[0, 4]]), max_len=3, bos_id=0).shape == (1, 3)


@pytest.mark.parametrize(
    ("src", "error", "words"),
    [
        (np.array([[3, 9]]), IndexError, r"src: id 9 is outside 0\.\.8"),
        (np.array([[3, -1]]), IndexError, r"src: id -1 is outside 0\.\.8"),
        (np.array([3, 4]), ValueError, "src must have 2 axes"),
        (np.array([[3.0]]), ValueError, "src must hold integers"),
        (np.empty((0, 3), int), ValueError, "src is empty"),
    ],
)
def test_bad_input(src, error, words):
    with pytest.raises(error, match=words):
        tnp.greedy(untrained(), src)
