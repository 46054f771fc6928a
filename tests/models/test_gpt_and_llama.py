"""GPT and Llama as models: what may change what, training by the common step, files, and refusals."""

import numpy as np
import pytest

import transformer_np as tnp

V, T = 13, 8
FLOAT64 = {"dtype": "float64"}
MODELS = {
    "GPT": lambda **o: tnp.GPT(V, 12, 3, 2, **{"dropout": 0.0, "max_len": 20, **FLOAT64, **o}),
    "GPT, untied, window": lambda **o: tnp.GPT(
        V, 12, 3, 2, **{"dropout": 0.0, "max_len": 20, "tie_embeddings": False, "window": 3, **FLOAT64, **o}
    ),
    "Llama": lambda **o: tnp.Llama(V, 12, 3, 2, **{**FLOAT64, **o}),
    "Llama, grouped, tied, window": lambda **o: tnp.Llama(
        V, 12, 2, 2, **{"n_kv_heads": 1, "tie_embeddings": True, "window": 3, **FLOAT64, **o}
    ),
}
IDS = np.random.default_rng(0).integers(1, V, (3, T))

each_model = pytest.mark.parametrize("name", MODELS)


def made(name, **options):
    model, rng = MODELS[name](**options), np.random.default_rng(1)
    for p in model.parameters():
        p.data += (0.4 * rng.standard_normal(p.shape)).astype(p.data.dtype)
    return model


@each_model
def test_no_token_sees_the_future_nor_beyond_the_window(name):
    model = made(name)
    model.layers = model.layers[:1]  # with more layers, what is out of sight is seen by neighbours
    before = model.forward(IDS)
    changed = IDS.copy()
    changed[:, 4] = changed[:, 4] % (V - 1) + 1
    differs = (model.forward(changed) != before).any((0, 2))
    last = T if model.window is None else 4 + model.window
    np.testing.assert_array_equal(differs, [4 <= t < last for t in range(T)])


@each_model
def test_padding_on_either_side_changes_nothing(name):
    model = made(name)
    alone = model.forward(IDS)
    dlogits = np.random.default_rng(2).standard_normal(alone.shape)
    model.zero_grad()
    model.backward(dlogits)
    gradients = [p.grad.copy() for p in model.parameters()]
    for before, after in ((3, 0), (0, 4), (2, 1)):
        sides = ((0, 0), (before, after))
        mask = np.pad(np.ones(IDS.shape, bool), sides)
        for fill in (0, 7):
            got = model.forward(np.pad(IDS, sides, constant_values=fill), mask)
            np.testing.assert_allclose(got[:, before : before + T], alone, rtol=0, atol=1e-13 * abs(alone).max())
            assert np.isfinite(got).all()
            model.zero_grad()
            model.backward(np.pad(dlogits, (*sides, (0, 0))))
            for p, gradient in zip(model.parameters(), gradients, strict=True):
                np.testing.assert_allclose(p.grad, gradient, rtol=0, atol=1e-12 * max(1, abs(gradient).max()))


@each_model
def test_pad_id_says_what_padding_is(name):
    text = np.pad(IDS, ((0, 0), (0, 3)))
    got = made(name, pad_id=0).forward(text)
    np.testing.assert_array_equal(got, made(name).forward(text, text != 0))


@each_model
def test_the_common_training_step_learns(name):
    model = MODELS[name](dtype="float32")
    text = np.arange(60).reshape(4, 15) % 5
    step = tnp.TrainStep(model, tnp.CrossEntropy(), tnp.AdamW(model.parameters(), lr=1e-2), clip=1.0)
    losses = [step(text[:, :-1], text[:, 1:]) for _ in range(60)]
    assert losses[0] > 2.3  # about log 13: it knows nothing yet
    assert losses[-1] < 0.1
    np.testing.assert_array_equal(tnp.greedy(model, np.array([[0, 1, 2]]), max_len=6), [[3, 4, 0, 1, 2, 3]])


@each_model
def test_on_several_threads_the_same_gradients(name):
    model, ids = made(name), np.random.default_rng(3).integers(0, V, (5, 9))
    one, two = (
        tnp.TrainStep(m, tnp.CrossEntropy(), tnp.SGD(m.parameters(), lr=0.1), threads=threads)
        for m, threads in ((model, None), (made(name), 2))
    )
    assert one(ids[:, :-1], ids[:, 1:]) == pytest.approx(two(ids[:, :-1], ids[:, 1:]), rel=1e-13)
    for p, q in zip(model.parameters(), two.model.parameters(), strict=True):
        np.testing.assert_allclose(p.data, q.data, rtol=0, atol=1e-14 * abs(p.data).max())


@each_model
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_files(name, dtype, tmp_path):
    model = made(name, dtype=dtype)
    model.save(tmp_path / "model")
    loaded = tnp.load(tmp_path / "model")
    assert type(loaded) is type(model)
    assert loaded.config == model.config
    np.testing.assert_array_equal(loaded.eval().forward(IDS), model.eval().forward(IDS))


def test_first_weights():
    # N(0, 0.02²), and 1 / sqrt(2 N) of it where a layer writes to the residual path: 2,400 numbers give 5 % or better.
    model = tnp.GPT(200, 48, 4, 2, max_len=50)
    layer = model.layers[1]
    for p in (model.embedding.weight, model.positions.weight, layer.self_attention.w_k.weight):
        assert p.data.std() == pytest.approx(0.02, rel=0.05)
    for p in (layer.self_attention.w_o.weight, layer.feed_forward.linear2.weight):
        assert p.data.std() == pytest.approx(0.02 / 2, rel=0.05)
    loss = tnp.CrossEntropy().forward(model.eval().forward(np.arange(50)[None]), np.arange(50)[None] + 1)
    assert loss == pytest.approx(np.log(200), rel=0.02)  # it knows nothing yet, and says so


def test_sizes():
    # GPT-2 small has 124,439,808 parameters; Llama 2's smallest 6,738,415,616. In thousandths: a layer, and the rest.
    gpt = tnp.GPT(503, 96, 12, 1, max_len=102, dtype="float16")
    assert gpt.n_parameters() == 503 * 96 + 102 * 96 + 12 * 96**2 + 13 * 96 + 2 * 96
    llama = tnp.Llama(320, 64, 8, 1, d_ff=172, n_kv_heads=2, dtype="float16")
    assert llama.n_parameters() == 2 * 320 * 64 + 64 * 64 * 2 + 2 * 64 * 16 + 3 * 64 * 172 + 3 * 64


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"pad_id": 13}, ValueError, "pad_id must be None or an id of the vocabulary, got 13"),
        ({"window": 0}, ValueError, "window must be an integer of at least 1, got 0"),
        ({"max_len": 2.5}, ValueError, "max_len must be an integer of at least 1"),
        ({"n_layers": 0}, ValueError, "n_layers must be an integer of at least 1"),
        ({"n_heads": 5}, ValueError, "must be a multiple of n_heads 5"),
    ],
)
@pytest.mark.parametrize("kind", [tnp.GPT, tnp.Llama])
def test_options_that_do_not_fit(kind, change, error, words):
    with pytest.raises(error, match=words):
        kind(**{"vocab_size": V, "d_model": 12, "n_heads": 3, "n_layers": 1, **change})


@pytest.mark.parametrize("kind", ["GPT", "Llama"])
def test_input_that_does_not_fit_changes_nothing(kind):
    model = made(kind, max_len=T)
    dlogits = np.random.default_rng(4).standard_normal(model.forward(IDS).shape)
    refusals = [
        ((IDS[0],), ValueError, "ids must have 2 axes"),
        ((IDS.astype(float),), ValueError, "ids must hold integers"),
        ((IDS + V,), IndexError, "ids: id .* is outside"),
        ((IDS - 5,), IndexError, "ids: id .* is outside"),
        ((np.zeros((1, T + 1), int),), ValueError, f"length {T + 1} from position 0 passes max_len {T}"),
        ((IDS, np.ones(IDS.shape)), ValueError, "mask must be boolean"),
        ((IDS, np.ones((3, T - 1), bool)), ValueError, "mask must be boolean of shape"),
    ]
    for arguments, error, words in refusals:
        with pytest.raises(error, match=words):
            model.forward(*arguments)
    model.backward(dlogits)  # of the forward that went well
    with pytest.raises(RuntimeError, match="call forward first"):
        model.backward(dlogits)


def test_dropout_stands_where_gpt2_has_it():
    """After the embeddings, on the attention weights, and on what each sub-layer adds: not inside the feed-forward."""
    model = tnp.GPT(11, 8, 2, 1, dropout=0.3)
    places = {name: m.p for name, m in model.named_modules() if isinstance(m, tnp.layers.Dropout) and m.p > 0}
    on = ["dropout", "layers.0.dropout1", "layers.0.dropout2", "layers.0.self_attention.attention.dropout"]
    assert places == dict.fromkeys(on, 0.3)
