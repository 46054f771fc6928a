"""BP-63 for generation: on arrays that NumPy may not touch, every model writes what it writes on NumPy's."""

import functools

import numpy as np
import pytest
from stand_in_gpu import fake_gpu  # noqa: F401 (a fixture)

import transformer_np as tnp
from transformer_np.generation import SpillingCache

FLOAT64 = {"dtype": "float64"}
MODELS = {
    "GPT": lambda: tnp.GPT(11, 12, 3, 2, dropout=0.0, max_len=30, **FLOAT64),
    "Llama, window": lambda: tnp.Llama(11, 16, 4, 2, n_kv_heads=2, window=3, **FLOAT64),
    "Transformer": lambda: tnp.Transformer(11, 11, 12, 3, 1, 2, 20, dropout=0.0, max_len=20, **FLOAT64),
    "T5": lambda: tnp.T5(11, 12, 3, 1, 2, d_ff=20, dropout=0.0, **FLOAT64),
}


@pytest.mark.parametrize("name", MODELS)
def test_bp63_writing_on_a_device(fake_gpu, name, tmp_path):  # noqa: F811
    model, rng = MODELS[name](), np.random.default_rng(1)
    for p in model.parameters():
        p.data += 0.4 * rng.standard_normal(p.shape)
    ids = rng.integers(1, 11, (3, 6))
    mask = np.arange(6) >= np.array([[0], [3], [1]])
    settings = {"max_len": 7, "eos_id": 2}
    chance = {"top_k": 5, "top_p": 0.9, "repetition_penalty": 1.2, "seed": 0}
    writers = [tnp.greedy, functools.partial(tnp.beam_search, beam_size=3), functools.partial(tnp.sample, **chance)]
    expected = [write(model, ids, mask=mask, **settings) for write in writers]
    model, ids, mask = model.to("cupy"), fake_gpu.asarray(ids), fake_gpu.asarray(mask)
    # Room on the device for one layer of a greedy text, and the rest on disk.
    spilling = functools.partial(SpillingCache, gpu_bytes=2 * 3 * 13 * 12 * 8, folder=tmp_path)
    for cache in (True, False, spilling):
        for write, text in zip(writers, expected, strict=True):
            np.testing.assert_array_equal(write(model, ids, mask=mask, cache=cache, **settings).get(), text)
