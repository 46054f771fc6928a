"""checkpoint=True in every model of a stack: the same gradients to the last bit, from less that is kept."""

import gc
import tracemalloc

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.layers import Checkpoint

IDS, OTHER_IDS = np.random.default_rng(0).integers(1, 11, (2, 4, 12))
IMAGES = np.random.default_rng(1).standard_normal((4, 2, 12, 12)).astype("float32")
MODELS = {
    "Transformer": (tnp.Transformer, (11, 11, 16, 2, 4, 4, 32, 0.2), {"max_len": 12}, (IDS, OTHER_IDS)),
    "GPT": (tnp.GPT, (11, 16, 2, 6), {"dropout": 0.2, "max_len": 12}, (IDS,)),
    "GPT, window": (tnp.GPT, (11, 16, 2, 6), {"dropout": 0.2, "max_len": 12, "window": 3}, (IDS,)),
    "Llama": (tnp.Llama, (11, 16, 4, 6), {"dropout": 0.2, "n_kv_heads": 2}, (IDS,)),
    "BERT": (tnp.BERT, (11, 16, 2, 6, 32), {"dropout": 0.2, "max_len": 12}, (IDS,)),
    "T5": (tnp.T5, (11, 16, 2, 4, 4, 32), {"dropout": 0.2, "d_head": 8}, (IDS, OTHER_IDS)),
    "ViT": (tnp.ViT, (12, 3, 2, 5, 16, 2, 6, 32), {"dropout": 0.2}, (IMAGES,)),
    "ConvEncoder": (tnp.ConvEncoder, (11,), {"d_model": 16, "n_layers": 6, "dropout": 0.2}, (IDS,)),
}


def build(name, checkpoint, **changes):
    kind, sizes, options, inputs = MODELS[name]
    return kind(*sizes, seed=3, checkpoint=checkpoint, **{**options, **changes}), inputs


def of_one_step(model, inputs, seed=0):
    """What forward returns and every parameter's gradient."""
    model.zero_grad()
    outputs = model.forward(*inputs)
    several = isinstance(outputs, tuple)
    rng = np.random.default_rng(seed)
    d = [rng.standard_normal(y.shape).astype(y.dtype) for y in (outputs if several else (outputs,))]
    dx = model.backward(tuple(d) if several else d[0])
    arrays = [*(outputs if several else (outputs,)), *(p.grad for p in model.parameters())]
    return arrays + ([dx] if isinstance(dx, np.ndarray) else [])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_bitwise_equal(name, dtype):
    """Dropout is on, over two steps: so the random streams stand alike after a step, too."""
    (plain, inputs), (checkpointed, _) = build(name, False, dtype=dtype), build(name, True, dtype=dtype)
    inputs = [x.astype(dtype) if x.dtype.kind == "f" else x for x in inputs]
    assert any(isinstance(module, Checkpoint) for _, module in checkpointed.named_modules())
    for seed in range(2):
        pairs = list(zip(of_one_step(plain, inputs, seed), of_one_step(checkpointed, inputs, seed), strict=True))
        assert all(one.tobytes() == other.tobytes() for one, other in pairs)
    assert any(np.count_nonzero(one) for one, _ in pairs)


def bytes_kept(model, inputs):
    """How much more memory is in use after forward than before it."""
    model.forward(*inputs)  # tables of positions and the like are made once
    model.forget()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    model.forward(*inputs)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return after - before


@pytest.mark.parametrize("name", MODELS)
def test_less_is_kept(name):
    """Of a layer its input alone, (B, T, D), where else some 20 arrays like it are kept; heads and embeddings stay."""
    kept = []
    for checkpoint in (False, True):
        model, inputs = build(name, checkpoint)
        kept.append(bytes_kept(model, inputs))
    assert kept[1] < kept[0] / 2


@pytest.mark.parametrize("name", MODELS)
def test_files_and_names(name, tmp_path):
    plain, checkpointed = build(name, False)[0], build(name, True)[0]
    assert [n for n, _ in plain.named_parameters()] == [n for n, _ in checkpointed.named_parameters()]
    checkpointed.save(tmp_path / "model.safetensors")
    for changes, expected in (({}, True), ({"checkpoint": False}, False)):
        model = tnp.load(tmp_path / "model.safetensors", **changes)
        assert model.config["checkpoint"] is expected
        assert any(isinstance(module, Checkpoint) for _, module in model.named_modules()) is expected
        for key, value in plain.state_dict().items():
            np.testing.assert_array_equal(model.state_dict()[key], value)


@pytest.mark.parametrize("name", ["GPT", "Llama", "T5", "Transformer"])
def test_writing_uses_the_cache_all_the_same(name):
    texts = []
    for checkpoint in (False, True):
        model, inputs = build(name, checkpoint)
        texts.append(tnp.greedy(model.eval(), inputs[0][:, :4], max_len=8))
    np.testing.assert_array_equal(*texts)
