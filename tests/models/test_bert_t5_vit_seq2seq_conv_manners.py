"""What BERT, T5, ViT, Seq2SeqRNN and ConvEncoder promise as the Transformer does: files, padding, training, errors."""

import numpy as np
import pytest

import transformer_np as tnp

V, D, H, F = 11, 8, 2, 12
IDS = np.array([[3, 4, 5, 8, 7], [6, 3, 3, 0, 0], [8, 2, 9, 4, 0], [5, 1, 0, 0, 0]])
TGT = np.array([[1, 4, 9, 6], [1, 3, 5, 0], [1, 7, 0, 0], [1, 2, 2, 8]])
SEGMENTS = (np.arange(5) > 1) * np.ones((4, 1), int)
IMAGES = np.random.default_rng(0).standard_normal((4, 1, 4, 4))
LABELS = np.array([0, 2, 1, 1])
WORDS = np.where(IDS % 2 == 1, IDS, -100)
TOKENS = tnp.CrossEntropy(ignore_index=0)

# name: (how to make it, what goes in, the loss, what should come out)
MODELS = {
    "BERT": (
        lambda **o: tnp.BERT(V, D, H, 2, F, **o),
        (IDS, SEGMENTS),
        tnp.SumOfLosses(tnp.CrossEntropy(ignore_index=-100), tnp.CrossEntropy()),
        (WORDS, LABELS % 2),
    ),
    "BERT, words": (
        lambda **o: tnp.BERT(V, D, H, 2, F, heads="words", **o),
        (IDS,),
        tnp.CrossEntropy(ignore_index=-100),
        WORDS,
    ),
    "T5": (lambda **o: tnp.T5(V, D, H, 2, 2, F, 3, **o), (IDS, TGT), TOKENS, TGT),
    "T5 1.1": (
        lambda **o: tnp.T5(V, D, H, 1, 2, F, 3, activation="gelu_tanh", gated=True, tie_embeddings=False, **o),
        (IDS, TGT),
        TOKENS,
        TGT,
    ),
    "ViT": (lambda **o: tnp.ViT((4, 4), 2, 1, 3, D, H, 2, F, **o), (IMAGES,), tnp.CrossEntropy(), LABELS),
    "LSTM": (lambda **o: tnp.Seq2SeqRNN(V, V, D, 2, **o), (IDS, TGT), TOKENS, TGT),
    "GRU": (
        lambda **o: tnp.Seq2SeqRNN(V, V, D, 1, "gru", attention=False, bidirectional=True, **o),
        (IDS, TGT),
        TOKENS,
        TGT,
    ),
    "ConvEncoder": (lambda **o: tnp.ConvEncoder(V, None, D, 2, **o), (IDS,), TOKENS, IDS),
}


def outputs(model, inputs):
    """Forward, always as a tuple."""
    y = model.forward(*inputs)
    return y if isinstance(y, tuple) else (y,)


@pytest.mark.parametrize("name", MODELS)
def test_round_trip(name, tmp_path):
    make, inputs, *_ = MODELS[name]
    model = make(seed=3, dtype="float64").eval()
    model.save(tmp_path / "model.safetensors")
    loaded = tnp.load(tmp_path / "model.safetensors").eval()
    assert type(loaded) is type(model)
    for y, z in zip(outputs(model, inputs), outputs(loaded, inputs), strict=True):
        np.testing.assert_array_equal(y, z)
    assert [n for n, _ in loaded.named_parameters()] == [n for n, _ in model.named_parameters()]


@pytest.mark.parametrize("threads", [None, 2])
@pytest.mark.parametrize("name", MODELS)
def test_trained_by_the_same_lines_to_overfit_one_batch(name, threads):
    make, inputs, loss_fn, targets = MODELS[name]
    model = make(dropout=0.0, dtype="float64")
    step = tnp.TrainStep(model, loss_fn, tnp.Adam(model.parameters(), lr=0.01), threads=threads, clip=1.0)
    losses = [step(*inputs, targets) for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("name", ["BERT", "T5", "LSTM"])
def test_threads_change_nothing_but_rounding(name):
    make, inputs, loss_fn, targets = MODELS[name]
    trained = []
    for threads in (None, 3):
        model = make(dropout=0.0, dtype="float64")
        step = tnp.TrainStep(model, loss_fn, tnp.Adam(model.parameters(), lr=0.01, eps=1e-4), threads=threads)
        trained.append(([step(*inputs, targets) for _ in range(3)], model.parameters()))
    (losses, parameters), (other_losses, other_parameters) = trained
    np.testing.assert_allclose(losses, other_losses, rtol=1e-12)
    for p, q in zip(parameters, other_parameters, strict=True):
        np.testing.assert_allclose(p.data, q.data, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "ViT"])
def test_padding_changes_nothing(name):
    make, (ids, *others), *_ = MODELS[name]
    model = make(dtype="float64").eval()
    longer = [np.pad(ids, ((0, 0), (0, 3)))]
    if name.startswith("BERT"):
        longer += [np.pad(a, ((0, 0), (0, 3))) for a in others]
    else:
        longer += others
    for y, z in zip(outputs(model, (ids, *others)), outputs(model, longer), strict=True):
        np.testing.assert_allclose(z[:, : y.shape[1]], y, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", ["T5", "T5 1.1", "LSTM", "GRU"])
def test_nothing_ahead_is_seen_and_greedy_works(name):
    make, (src, tgt), *_ = MODELS[name]
    model = make(dtype="float64", max_len=12).eval()
    y = model.forward(src, tgt)
    changed = tgt.copy()
    changed[:, 2:] = 9
    np.testing.assert_array_equal(model.forward(src, changed)[:, :2], y[:, :2])
    bos = 0 if name.startswith("T5") else 1
    ids = tnp.greedy(model, src, max_len=6, bos_id=bos, eos_id=2)
    assert ids.shape[0] == len(src)
    first = model.forward(src, np.full((len(src), 1), bos))[:, 0]
    first[:, [bos, 0]] = -np.inf  # greedy chooses neither
    np.testing.assert_array_equal(ids[:, 0], first.argmax(-1))


def test_a_causal_convolution_sees_nothing_ahead_and_its_reach_is_what_the_docstring_says():
    model = tnp.ConvEncoder(V, None, D, 2, 3, "causal", dtype="float64").eval()
    ids = np.arange(1, 11)[None]
    y = model.forward(ids)
    for place in range(10):
        changed = ids.copy()
        changed[0, place] = 11 - ids[0, place]
        if changed[0, place] == ids[0, place]:
            continue
        moved = np.flatnonzero((model.forward(changed) != y).any(-1)[0])
        np.testing.assert_array_equal(moved, np.arange(place, min(place + (3 - 1) * 2 + 1, 10)))


def test_two_heads_are_the_sum_of_one_and_the_other():
    model = tnp.BERT(V, D, H, 2, F, dtype="float64").eval()
    words, is_next = model.forward(IDS, SEGMENTS)
    first, second = tnp.CrossEntropy(ignore_index=-100), tnp.CrossEntropy()
    both = tnp.SumOfLosses(tnp.CrossEntropy(ignore_index=-100), tnp.CrossEntropy())
    loss = both.forward((words, is_next), (WORDS, LABELS % 2))
    assert loss == first.forward(words, WORDS) + second.forward(is_next, LABELS % 2)
    for ours, alone in zip(both.backward(), (first.backward(), second.backward()), strict=True):
        np.testing.assert_array_equal(ours, alone)


REFUSALS = {
    "segments out of range": (lambda: tnp.BERT(V, D, H, 1, F).forward(IDS, SEGMENTS + 1), IndexError, "segments"),
    "segments of another shape": (lambda: tnp.BERT(V, D, H, 1, F).forward(IDS, SEGMENTS[1:]), ValueError, "segments"),
    "a mask of numbers": (lambda: tnp.BERT(V, D, H, 1, F).forward(IDS, None, IDS), ValueError, "mask must be boolean"),
    "past max_len": (lambda: tnp.BERT(V, D, H, 1, F, max_len=4).forward(IDS), ValueError, "max_len 4"),
    "unknown heads": (lambda: tnp.BERT(V, D, H, 1, F, heads="both"), ValueError, "heads must be one of"),
    "T5 past max_len": (lambda: tnp.T5(V, D, H, 1, 1, F, 3, max_len=4).forward(IDS, TGT), ValueError, "max_len 4"),
    "two batch sizes": (lambda: tnp.T5(V, D, H, 1, 1, F, 3).forward(IDS, TGT[:2]), ValueError, "same batch size"),
    "an image of another size": (lambda: tnp.ViT(8, 2, 1, 3, D, H, 1, F).forward(IMAGES), ValueError, "images"),
    "patches that do not tile": (lambda: tnp.ViT(9, 2, 1, 3, D, H, 1, F), ValueError, "do not tile"),
    "an unknown cell": (lambda: tnp.Seq2SeqRNN(V, V, D, cell="lstn"), ValueError, "cell must be one of"),
    "an odd width in two halves": (lambda: tnp.Seq2SeqRNN(V, V, 7, bidirectional=True), ValueError, "must be even"),
    "padding that is no id": (lambda: tnp.BERT(V, D, H, 1, F, pad_id=V), ValueError, "pad_id must be None or an id"),
    "T5's padding": (lambda: tnp.T5(V, D, H, 1, 1, F, 3, pad_id=-1), ValueError, "pad_id must be None or an id"),
    "padding of one side only": (lambda: tnp.Seq2SeqRNN(V, V - 1, D, pad_id=V - 1), ValueError, "pad_id must be None"),
    "padding to convolve": (lambda: tnp.ConvEncoder(V, None, D, 1, pad_id="0"), ValueError, "pad_id must be None or"),
    "an id too large": (lambda: tnp.ConvEncoder(V, None, D, 1).forward(IDS + 3), IndexError, "id 12"),
    "one target for two losses": (
        lambda: tnp.SumOfLosses(TOKENS, TOKENS).forward((IMAGES, IMAGES), IDS),
        ValueError,
        "targets must be a tuple of 2",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    call, error, message = REFUSALS[name]
    with pytest.raises(error, match=message):
        call()
