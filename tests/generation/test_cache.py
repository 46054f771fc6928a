"""The key/value cache: the same as computing the whole text anew, in every model, in bounded memory."""

import functools
import tracemalloc

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.generation import KeyValueCache, MemoryCache, SpillingCache, StateCache
from transformer_np.generation.writing import Text, at_rest, write

V, FLOAT64 = 11, {"dtype": "float64"}
IDS = np.random.default_rng(0).integers(1, V, (3, 9))
LEFT_PADDED = np.arange(9) >= np.array([0, 3, 5])[:, None]

DECODER_ONLY = {
    "GPT": lambda: tnp.GPT(V, 12, 3, 2, max_len=40, **FLOAT64),
    "GPT, window": lambda: tnp.GPT(V, 12, 3, 2, max_len=40, window=4, **FLOAT64),
    "Llama": lambda: tnp.Llama(V, 12, 3, 2, n_kv_heads=1, **FLOAT64),
    "Llama, interleaved": lambda: tnp.Llama(V, 12, 3, 2, layout="interleaved", **FLOAT64),
    "Llama, window": lambda: tnp.Llama(V, 16, 4, 2, n_kv_heads=2, window=3, **FLOAT64),
}
ENCODER_DECODER = {
    "post": lambda: tnp.Transformer(V, V, 12, 3, 1, 2, 20, max_len=20, **FLOAT64),
    "pre, learned": lambda: tnp.Transformer(
        V, V, 12, 3, 1, 2, 20, max_len=20, norm="pre", positions="learned", **FLOAT64
    ),
    "T5": lambda: tnp.T5(V, 12, 3, 1, 2, d_ff=20, n_buckets=8, max_distance=6, **FLOAT64),
}


def made(build, seed=1):
    """The model with random weights of a size that makes attention choosy, and no dropout."""
    model, rng = build().eval(), np.random.default_rng(seed)
    for p in model.parameters():
        p.data += 0.4 * rng.standard_normal(p.shape)
    return model


def piecewise(pieces, decode):
    """Decode 9 tokens in pieces of the given lengths; put the results side by side."""
    parts, start = [], 0
    with tnp.inference():
        for n in pieces:
            parts.append(decode(slice(start, start + n)))
            start += n
    return np.concatenate(parts, 1)


def assert_equal_to_rounding(a, b):
    """Equal to 1e-12: not bit for bit, since products of other shapes add up in another order (BP-52)."""
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * abs(b).max())


@pytest.mark.parametrize("pieces", [[1] * 9, [6, 1, 1, 1], [6, 3], [9]], ids=str)
@pytest.mark.parametrize("name", DECODER_ONLY)
def test_decoder_only(name, pieces):
    model = made(DECODER_ONLY[name])
    cache = KeyValueCache(9, model.window)
    got = piecewise(pieces, lambda part: model.output(model.decode(IDS[:, part], cache=cache)))
    assert_equal_to_rounding(got, model.forward(IDS))
    assert cache.length == 9


@pytest.mark.parametrize("pieces", [[6, 1, 1, 1], [6, 2, 1]], ids=str)
@pytest.mark.parametrize("name", DECODER_ONLY)
def test_texts_padded_on_the_left(name, pieces):
    model = made(DECODER_ONLY[name])
    cache = KeyValueCache(9, model.window)

    def decode(part):
        return model.output(model.decode(IDS[:, part], LEFT_PADDED[:, part] if part.start == 0 else None, cache))

    got = piecewise(pieces, decode)
    assert_equal_to_rounding(got[LEFT_PADDED], model.forward(IDS, LEFT_PADDED)[LEFT_PADDED])
    for row, real, alone in zip(got, LEFT_PADDED, IDS, strict=True):  # and to each text alone, without its padding
        assert_equal_to_rounding(row[real], model.forward(alone[None, real])[0])


@pytest.mark.parametrize("pieces", [[1] * 9, [4, 1, 1, 3]], ids=str)
@pytest.mark.parametrize("name", ENCODER_DECODER)
def test_encoder_decoder_and_its_memory_computed_once(name, pieces):
    model = made(ENCODER_DECODER[name])
    src = np.where(LEFT_PADDED[:, ::-1], IDS, 0)
    tgt = np.random.default_rng(2).integers(1, V, (3, 9))
    cross = [layer.cross_attention for layer in model.decoder.layers]
    with tnp.inference():
        memory, src_mask = model.encode(src)
    cache, calls = KeyValueCache(9, memory=MemoryCache()), []
    for attention in cross:
        attention.w_k.forward = lambda x, forward=attention.w_k.forward: calls.append(x.shape) or forward(x)

    def decode(part):
        return model.output(model.decode(tgt[:, part], memory if part.start == 0 else None, src_mask, cache=cache))

    got = piecewise(pieces, decode)
    assert calls == [memory.shape] * len(cross)
    assert_equal_to_rounding(got, model.forward(src, tgt))


RECURRENT = {
    f"{cell}, {'with' if attention else 'no'} attention": (cell, attention)
    for cell in ("lstm", "gru", "rnn")
    for attention in (True, False)
}


@pytest.mark.parametrize("pieces", [[1] * 9, [4, 3, 2], [9]], ids=str)
@pytest.mark.parametrize("name", RECURRENT)
def test_a_recurrent_decoder_goes_on_from_its_states(name, pieces):
    cell, attention = RECURRENT[name]
    model = made(lambda: tnp.Seq2SeqRNN(V, V, 12, 2, cell, attention, **FLOAT64))
    src = np.where(LEFT_PADDED, IDS, 0)[:, ::-1]  # padding at the end, as sources have it
    cache = StateCache()
    with tnp.inference():
        memory, mask = model.encode(src)
        whole = model.decode(IDS, memory, mask)
    got = piecewise(
        pieces, lambda part: model.decode(IDS[:, part], None if cache.length else memory, mask, cache=cache)
    )
    assert_equal_to_rounding(got, whole)
    assert cache.length == 9
    with pytest.raises(RuntimeError, match="inference"):
        model.decode(IDS, memory, mask, cache=StateCache())


@pytest.mark.parametrize("attention", [True, False])
def test_recurrent_models_write_the_same_with_and_without_states_kept(attention):
    model = made(lambda: tnp.Seq2SeqRNN(V, V, 12, 2, "lstm", attention, max_len=25, **FLOAT64))
    src = np.where(LEFT_PADDED, IDS, 0)[:, ::-1]
    for write_it in (
        functools.partial(tnp.greedy, max_len=20),
        functools.partial(tnp.beam_search, beam_size=4, max_len=20),
        functools.partial(tnp.sample, max_len=20, seed=3),
    ):
        np.testing.assert_array_equal(write_it(model, src), write_it(model, src, cache=False))
    with pytest.raises(ValueError, match="no keys and values"):
        tnp.greedy(model, src, cache=KeyValueCache)


def test_bp51_position_of_a_new_token():
    # A prompt of 3 tokens, then 1: it stands at position 3, not at 0 again.
    model = made(DECODER_ONLY["GPT"])
    seen = []
    forward = model.positions.forward
    model.positions.forward = lambda positions: seen.append(positions.tolist()) or forward(positions)
    cache = KeyValueCache(8)
    with tnp.inference():
        model.decode(IDS[:1, :3], cache=cache)
        new = model.output(model.decode(IDS[:1, 3:4], cache=cache))[0, -1]
    assert seen == [[[0, 1, 2]], [[3]]]
    assert_equal_to_rounding(new, model.forward(IDS[:1, :4])[0, 3])


def test_bp52_float32_agrees_to_its_rounding_and_in_the_choice():
    model = made(lambda: tnp.GPT(50, 32, 4, 3, max_len=64))
    ids = np.random.default_rng(3).integers(0, 50, (4, 30))
    cache = KeyValueCache(30)
    with tnp.inference():
        got = np.concatenate([model.output(model.decode(ids[:, i : i + 1], cache=cache)) for i in range(30)], 1)
    whole = model.forward(ids)
    np.testing.assert_allclose(got, whole, rtol=1e-4, atol=1e-4 * abs(whole).max())
    np.testing.assert_array_equal(got.argmax(-1), whole.argmax(-1))


@pytest.mark.parametrize("name", ["GPT", "Llama, window", "post", "T5"])
def test_rows_can_be_chosen_anew(name):
    rows = np.array([2, 2, 0, 1])
    if name in DECODER_ONLY:
        model = made(DECODER_ONLY[name])
        cache = KeyValueCache(9, model.window)
        first, later = {"mask": LEFT_PADDED[:, :6], "cache": cache}, lambda: {"cache": cache}
        whole = model.decode(IDS[rows], LEFT_PADDED[rows])
    else:
        model = made(ENCODER_DECODER[name])
        memory, src_mask = model.encode(IDS)
        cache = KeyValueCache(9, memory=MemoryCache())
        first = {"memory": memory, "src_mask": src_mask, "cache": cache}
        later = lambda: {"memory": None, "src_mask": src_mask[rows], "cache": cache}  # noqa: E731
        whole = model.decode(IDS[rows], memory[rows], src_mask[rows])
    with tnp.inference():
        model.decode(IDS[:, :6], **first)
        cache.keep_rows(rows)
        got = [model.decode(IDS[rows, i : i + 1], **later())[:, 0] for i in (6, 7, 8)]
    for t, x in zip((6, 7, 8), got, strict=True):
        assert_equal_to_rounding(x, whole[:, t])


@pytest.mark.parametrize("window", [None, 5])
def test_rows_may_change_places_again_and_again(window):
    """What stands in the cache is what the tokens of each sentence's own past wrote, wherever that past took place."""
    rng, layer = np.random.default_rng(5), "a layer"
    cache = KeyValueCache(40, window)
    past = np.empty((3, 1, 0, 2))  # (B, G, T, K)
    for t in range(40):
        new = rng.standard_normal((len(past), 1, 1, 2))
        past = np.concatenate([past, new], 2)
        places = cache.key_places(1)
        for kept in cache.extend(layer, new, new):
            np.testing.assert_array_equal(kept, past[:, :, places])
        cache.length += 1
        if t % 4:  # sometimes not at all, and now and then to another number of sentences
            rows = rng.integers(0, len(past), rng.integers(1, 6) if t % 10 == 1 else len(past))
            cache.keep_rows(rows)
            past = past[rows]


@pytest.mark.slow
def test_two_thousand_tokens_in_the_memory_of_the_cache():
    model = tnp.Llama(V, 16, 2, 1, d_ff=24).eval()
    prompt = IDS[:1, :4].astype("int32")
    tnp.greedy(model, prompt, max_len=5)  # whatever is made once
    sizes = []

    def choose(logits, ids):
        sizes.append(tracemalloc.get_traced_memory()[0])
        return logits.argmax(-1)

    tracemalloc.start()
    try:
        with at_rest(model):
            text = Text("here", model, prompt, max_len=2000)
            write(text, choose)
    finally:
        tracemalloc.stop()
    assert text.cache.nbytes == 2 * 2003 * 16 * 4  # keys and values, places, D, bytes
    # From the 10th token to the last nothing grows but ids, mask and the table of angles: bytes a token, not arrays.
    assert max(sizes[10:]) - sizes[10] < 250 * 2000
    assert max(sizes) < text.cache.nbytes + 300 * 2000


def test_a_window_bounds_the_cache_however_long_the_text():
    model = made(lambda: tnp.Llama(V, 16, 4, 2, n_kv_heads=2, window=5, **FLOAT64))
    got = tnp.greedy(model, IDS[:2], max_len=60)
    cache = KeyValueCache(10**9, window=5)  # no limit to the length
    with tnp.inference():
        model.decode(IDS[:2], cache=cache)
        nbytes = cache.nbytes
        for token in got.T:
            model.decode(token[:, None], cache=cache)
    assert cache.length == 9 + 60
    assert cache.nbytes == nbytes == 2 * 2 * 2 * (2 * 5 * 4) * 8  # keys and values, layers, B, (G, window, K), bytes
    np.testing.assert_array_equal(got, tnp.greedy(model, IDS[:2], max_len=60, cache=False))


def test_refusals_say_why_and_change_nothing():
    model = made(DECODER_ONLY["GPT"])
    cache = KeyValueCache(4)
    with tnp.inference():
        model.decode(IDS[:, :3], cache=cache)
        with pytest.raises(ValueError, match="2 new tokens after 3 pass the capacity of 4"):
            model.decode(IDS[:, :2], cache=cache)
        assert cache.length == 3
        with pytest.raises(ValueError, match="a mask belongs to the first tokens"):
            model.decode(IDS[:, :1], ~np.ones((3, 1), bool), cache=cache)
        with pytest.raises(ValueError, match="padding must stand on the left"):
            model.decode(IDS[:, :3], np.array([[True, False, True]] * 3), cache=KeyValueCache(4))
    with pytest.raises(RuntimeError, match=r"use it within tnp.inference\(\)"):
        model.decode(IDS[:, :1], cache=cache)
    with pytest.raises(ValueError, match="capacity must be an integer of at least 1, got 0"):
        KeyValueCache(0)


def where(cache):
    """For each layer, whether its arrays lie on disk, in memory, or on the GPU."""
    places = {np.memmap: "disk", np.ndarray: "memory"}
    return [places.get(type(keys), "gpu") for keys, _ in cache._arrays.values()]


@pytest.mark.parametrize("name", ["Llama", "Llama, window", "post"])
def test_spilling_to_disk_gives_the_same_text(name, tmp_path):
    model = made({**DECODER_ONLY, **ENCODER_DECODER}[name])
    made_caches = []

    def spilling(*arguments):
        capacity = arguments[0] if model_window is None else model_window
        one_layer = 2 * 3 * capacity * width * 8  # keys and values, sentences, places, G K, bytes
        made_caches.append(SpillingCache(*arguments, host_bytes=one_layer, folder=tmp_path))
        return made_caches[-1]

    model_window = getattr(model, "window", None)
    layers = model.layers if name in DECODER_ONLY else model.decoder.layers
    width = layers[0].self_attention.n_kv_heads * layers[0].self_attention.d_head
    np.testing.assert_array_equal(tnp.greedy(model, IDS, 10, cache=spilling), tnp.greedy(model, IDS, 10))
    assert where(made_caches[-1]) == ["memory", "disk"]
    on_disk = functools.partial(SpillingCache, folder=tmp_path)
    expected = tnp.beam_search(model, IDS, 3, max_len=10, eos_id=2)
    np.testing.assert_array_equal(tnp.beam_search(model, IDS, 3, max_len=10, eos_id=2, cache=on_disk), expected)
    assert list(tmp_path.iterdir()) == []  # the files are gone
    with pytest.raises(ValueError, match="budgets must be at least 0"):
        SpillingCache(5, host_bytes=-1)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*DECODER_ONLY, *ENCODER_DECODER])
def test_on_a_gpu_and_spilling_from_it(name, tmp_path):
    import cupy

    model = made({**DECODER_ONLY, **ENCODER_DECODER}[name])
    settings = {"max_len": 10, "eos_id": 2}
    expected = tnp.greedy(model, IDS, **settings), tnp.beam_search(model, IDS, 3, **settings)
    sampled = tnp.sample(model, IDS, top_k=5, top_p=0.9, repetition_penalty=1.2, seed=0, **settings)
    model, ids, caches = model.to("cupy"), cupy.asarray(IDS), []

    def spilling(*arguments):
        budget = (caches[0].nbytes - (caches[0].memory.nbytes if caches[0].memory else 0)) // 2 if caches else 10**9
        caches.append(SpillingCache(*arguments, gpu_bytes=budget, folder=tmp_path))
        return caches[-1]

    for cache in (True, False, spilling, spilling):
        np.testing.assert_array_equal(tnp.greedy(model, ids, cache=cache, **settings).get(), expected[0])
    assert [where(cache) for cache in caches] == [["gpu", "gpu"], ["gpu", "disk"]]
    for cache in (True, False, spilling):
        np.testing.assert_array_equal(tnp.beam_search(model, ids, 3, cache=cache, **settings).get(), expected[1])
    got = tnp.sample(model, ids, top_k=5, top_p=0.9, repetition_penalty=1.2, seed=0, **settings)
    np.testing.assert_array_equal(got.get(), sampled)
