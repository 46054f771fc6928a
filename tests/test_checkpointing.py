"""Checkpointed layers: the same gradients to the last bit, under the same names, from less memory."""

import copy
import gc
import tracemalloc

import numpy as np
import pytest
from finite_differences import assert_gradients, away_from_kinks
from layer_cases import CASES, FLOAT64, B, D, F, H, S, source_mask

import transformer_np as tnp
from transformer_np.layers import (
    Checkpoint,
    Dropout,
    Encoder,
    EncoderLayer,
    MultiHeadAttention,
    RelativePositionBias,
)
from transformer_np.training.replica import replicate

SRC = np.array([[3, 4, 5], [6, 0, 0]])
TGT = np.array([[1, 4, 9, 6], [1, 3, 0, 0]])
OPTIONS = {
    "post": {},
    "pre, tied": {"norm": "pre", "tie_embeddings": "target"},
    "float32": {"dtype": "float32"},
}


def transformer(checkpoint, **options):
    """A tiny Transformer of 2 + 2 layers with dropout."""
    options = {"dtype": "float64", "seed": 3, **options}
    return tnp.Transformer(9, 10, 6, 2, 2, 2, 8, 0.2, 11, checkpoint=checkpoint, **options)


def gradients(model, seed=0):
    """Logits and every parameter's gradient of one step."""
    model.zero_grad()
    logits = model.forward(SRC, TGT)
    dlogits = np.random.default_rng(seed).standard_normal(logits.shape).astype(logits.dtype)
    model.backward(dlogits)
    return {"logits": logits, **{name: p.grad.copy() for name, p in model.named_parameters()}}


def assert_bitwise_equal(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize("options", OPTIONS)
def test_gradients_are_bitwise_equal(options):
    """Over three steps: so the random streams stand alike after each, too."""
    plain, checkpointed = (transformer(checkpoint, **OPTIONS[options]) for checkpoint in (False, True))
    for seed in range(3):
        assert_bitwise_equal(gradients(plain, seed), gradients(checkpointed, seed))


@pytest.mark.parametrize("attention", [{"attention": "blockwise", "block": 2}, {"rotary": "halves", "d_head": 4}])
def test_attention_of_every_kind(attention):
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, B, S, D))
    results = []
    for checkpoint in (False, True):
        layer = Encoder(2, D, H, F, 0.3, attention=attention, checkpoint=checkpoint, seed=1, **FLOAT64)
        y, dx = layer.forward(x, source_mask()), layer.backward(dy)
        results.append({"y": y, "dx": dx, **{name: p.grad for name, p in layer.named_parameters()}})
    assert_bitwise_equal(*results)


def test_a_bias_of_the_whole_stack():
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, B, S, D))
    results = []
    for checkpoint in (False, True):
        bias = RelativePositionBias(H, 8, 6, seed=2, **FLOAT64)
        layer = Encoder(2, D, H, F, 0.3, position_bias=bias, checkpoint=checkpoint, seed=1, **FLOAT64)
        y, dx = layer.forward(x), layer.backward(dy)
        results.append({"y": y, "dx": dx, **{name: p.grad for name, p in layer.named_parameters()}})
    assert_bitwise_equal(*results)


def test_gradients_against_differences():
    def build(rng):
        layer, inputs = CASES["EncoderLayer, post"](rng)
        return Checkpoint(layer), inputs

    assert_gradients(*away_from_kinks(build), zero=("w_k.bias",))


@pytest.mark.parametrize("case", CASES)
def test_any_layer(case):
    """One output, several, ids, masks: a checkpoint passes on what comes."""
    results = []
    for wrap in (lambda layer: layer, Checkpoint):
        layer, inputs = CASES[case](np.random.default_rng(1))
        layer = wrap(layer)
        y = layer.forward(*inputs)
        d = layer.backward(np.ones_like(y))
        d = [a for a in (d if isinstance(d, tuple) else (d,)) if a is not None]
        results.append([y, *d, *(p.grad for p in layer.parameters())])
    for one, other in zip(*results, strict=True):
        assert one.tobytes() == other.tobytes()


def test_names_parts_and_state_are_those_of_the_layer():
    plain, checkpointed = transformer(False), transformer(True)
    assert [n for n, _ in plain.named_parameters()] == [n for n, _ in checkpointed.named_parameters()]
    assert {n for n, _ in plain.named_modules()} == {n for n, _ in checkpointed.named_modules()}
    checkpointed.load_state_dict(plain.state_dict())
    assert checkpointed.encoder.layers[0].self_attention.w_q.weight.shape == (6, 6)
    with pytest.raises(AttributeError, match="no_such_part"):
        _ = checkpointed.encoder.layers[0].no_such_part
    assert not checkpointed.eval().encoder.layers[1].dropout1.training
    assert checkpointed.train().encoder.layers[1].dropout1.training
    assert checkpointed.astype("float32").encoder.layers[0].dtype == np.float32
    assert gradients(checkpointed)["logits"].dtype == np.float32


def test_a_checkpointed_model_is_saved_and_read(tmp_path):
    model = transformer(True)
    model.save(tmp_path / "model.safetensors")
    again, plain = tnp.load(tmp_path / "model.safetensors"), tnp.load(tmp_path / "model.safetensors", checkpoint=False)
    assert isinstance(again.encoder.layers[0], Checkpoint)
    assert isinstance(plain.encoder.layers[0], EncoderLayer)
    assert_bitwise_equal(again.state_dict(), plain.state_dict())


def test_contract():
    model = transformer(True)
    logits = model.forward(SRC, TGT)
    held = [name for name, module in model.named_modules() if ".layers.0." in name and module._saved is not None]
    assert not held  # nothing inside a layer
    for layers in (model.encoder.layers, model.decoder.layers):
        assert [isinstance(layer, Checkpoint) for layer in layers] == [True, False]  # the last is wanted at once
        assert layers[0]._saved is not None
        assert layers[1].self_attention.w_q._saved is not None
    model.backward(np.ones_like(logits))
    assert all(module._saved is None for _, module in model.named_modules())
    assert model.encoder.layers[0].self_attention.weights is None
    with pytest.raises(RuntimeError, match="call forward first"):
        model.encoder.layers[0].backward(logits)
    with tnp.inference():
        model.forward(SRC, TGT)
    with pytest.raises(RuntimeError, match="call forward first"):
        model.backward(logits)
    model.forward(SRC, TGT)
    model.forget()
    with pytest.raises(RuntimeError, match="call forward first"):
        model.encoder.layers[0].backward(logits)


def test_a_wrong_dy_uses_nothing_up():
    rng = np.random.default_rng(0)
    layer = Checkpoint(EncoderLayer(D, H, F, seed=1, **FLOAT64))
    x = rng.standard_normal((B, S, D))
    layer.forward(x)
    with pytest.raises(ValueError, match="Checkpoint: upstream gradient dy must have shape"):
        layer.backward(x[:1])
    assert layer.backward(x).shape == x.shape


def test_a_mode_changed_in_between_is_an_error():
    layer = Checkpoint(EncoderLayer(D, H, F, seed=1, **FLOAT64))
    x = np.random.default_rng(0).standard_normal((B, S, D))
    layer.forward(x)
    layer.eval()
    with pytest.raises(RuntimeError, match=r"train\(\) or eval\(\) was called between forward and backward"):
        layer.backward(x)
    layer.forward(x)
    assert layer.backward(x).shape == x.shape  # eval() before both is fine


@pytest.mark.parametrize("replaying", ["throughout", "ended in between", "begun in between"])
def test_replayed_dropout(replaying):
    """The second forward must see the mask of the first, whatever happened to the replay meanwhile."""
    layer = Checkpoint(Dropout(0.5, seed=0))
    x = np.ones((40, 10))
    if replaying != "begun in between":
        layer.replay_dropout(True)
        layer.forward(x)
    y = layer.forward(x)
    if replaying != "throughout":
        layer.replay_dropout(replaying == "begun in between")
    np.testing.assert_array_equal(layer.backward(x), y)


@pytest.mark.parametrize("threads", [None, 2, 3])
def test_training_steps_are_bitwise_equal(threads):
    """Replicas are copies of the checkpoints too, with random streams of their own."""
    rng = np.random.default_rng(0)
    batch = [rng.integers(1, 9, (5, 4)) for _ in range(3)]
    states = []
    for checkpoint in (False, True):
        model = transformer(checkpoint, dtype="float32")
        loss_fn = tnp.CrossEntropy(label_smoothing=0.1, ignore_index=0)
        step = tnp.TrainStep(model, loss_fn, tnp.Adam(model.parameters()), threads, clip=1.0)
        losses = np.array([step(*batch) for _ in range(3)])
        states.append({"losses": losses, **model.state_dict()})
    assert_bitwise_equal(*states)


def test_copies():
    model = transformer(True)
    copied, replica = copy.deepcopy(model), replicate(model)
    assert_bitwise_equal(gradients(model), gradients(copied))
    assert gradients(replica)["logits"].tobytes() != gradients(model)["logits"].tobytes()  # other masks
    assert replica.encoder.layers[0].layer is not model.encoder.layers[0].layer


def test_memory():
    """Of 6 layers, one holds its activations at a time, so the peak falls to between 1/6 and 1/2."""
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, 4, 32, 16))
    peaks = []
    for checkpoint in (False, True):
        layer = Encoder(6, 16, 2, 64, 0.1, checkpoint=checkpoint, seed=1, **FLOAT64)
        layer.forward(x)
        layer.backward(dy)
        gc.collect()
        tracemalloc.start()
        layer.forward(x)
        layer.backward(dy)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] / 2


def test_attention_weights_are_not_kept_either():
    layer = Checkpoint(MultiHeadAttention(D, H, seed=0, **FLOAT64))
    x = np.random.default_rng(0).standard_normal((B, S, D))
    layer.forward(x, x, x)
    layer.backward(x)
    assert layer.weights is None
    with tnp.inference():
        layer.forward(x, x, x)
    assert layer.weights is None
