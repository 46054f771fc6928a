"""A training step on a GPU reads from it once: the loss, and with it whatever else is to be known."""

import sys
import warnings

import numpy as np
import pytest
from stand_in_gpu import DeviceArray, DeviceModule

import transformer_np as tnp
from transformer_np import backend, kernels

IDS, OTHER_IDS, TARGETS = np.random.default_rng(0).integers(0, 9, (3, 2, 5))
IMAGES = np.random.default_rng(1).standard_normal((2, 2, 6, 6)).astype("float32")
SEGMENTS, IS_NEXT = np.zeros_like(IDS), np.array([0, 1])
MODELS = {
    "Transformer": (lambda: tnp.Transformer(9, 9, 8, 2, 1, 1, 12, 0.1, 6), (IDS, OTHER_IDS, TARGETS)),
    "GPT": (lambda: tnp.GPT(9, 8, 2, 1, dropout=0.1, max_len=6), (IDS, TARGETS)),
    "GPT, padding": (lambda: tnp.GPT(9, 8, 2, 1, dropout=0.1, max_len=6, pad_id=0), (IDS, TARGETS)),
    "Llama": (lambda: tnp.Llama(9, 8, 2, 1), (IDS, TARGETS)),
    "Llama, padding": (lambda: tnp.Llama(9, 8, 2, 1, pad_id=0), (IDS, TARGETS)),
    "BERT": (lambda: tnp.BERT(9, 8, 2, 1, 12, max_len=6), (IDS, SEGMENTS, (TARGETS, IS_NEXT))),
    "T5": (lambda: tnp.T5(9, 8, 2, 1, 1, 12, d_head=4), (IDS, OTHER_IDS, TARGETS)),
    "ViT": (lambda: tnp.ViT(6, 3, 2, 9, 8, 2, 1, 12), (IMAGES, IS_NEXT)),
    "ConvEncoder": (lambda: tnp.ConvEncoder(9, d_model=8, n_layers=1), (IDS, TARGETS)),
    "Seq2SeqRNN": (lambda: tnp.Seq2SeqRNN(9, 9, 8), (IDS, OTHER_IDS, TARGETS)),
}


def on_device(xp, batch):
    return [tuple(map(xp.asarray, part)) if isinstance(part, tuple) else xp.asarray(part) for part in batch]


def loss_of(batch):
    loss = tnp.CrossEntropy(0.1, ignore_index=0)
    return tnp.SumOfLosses(loss, tnp.CrossEntropy()) if isinstance(batch[-1], tuple) else loss


def reads_of_cupy(function, monkeypatch):
    """How often `function` calls `to_numpy`; any other wait for the device raises."""
    from cupyx import allow_synchronize

    n, to_numpy = 0, backend.to_numpy

    def read(array):
        nonlocal n
        n += 1
        with allow_synchronize(True):
            return to_numpy(array)

    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "cupyx.allow_synchronize will be removed")
        patch.setattr(backend, "to_numpy", read)
        with allow_synchronize(False):
            function()
    return n


@pytest.fixture
def n_reads(xp, monkeypatch):
    """Return a function that says how often another one reads from the device."""

    def count(function):
        if not isinstance(xp, DeviceModule):
            return reads_of_cupy(function, monkeypatch)
        DeviceArray.n_read = 0
        function()
        return DeviceArray.n_read

    return count


@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize("name", MODELS)
def test_a_step_reads_once(xp, n_reads, name, clip):
    make, batch = MODELS[name]
    model, batch = make().to("cupy"), on_device(xp, batch)
    step = tnp.TrainStep(model, loss_of(batch), tnp.AdamW(model.parameters()), clip=clip)
    losses = [step(*batch)]  # tables of positions and the like are made at the first step
    assert n_reads(lambda: losses.append(step(*batch))) == 1
    assert losses[1] != losses[0]
    assert all(type(loss) is float for loss in losses)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_a_step_in_mixed_precision_reads_once(xp, n_reads, name, precision):
    pytest.importorskip("ml_dtypes")
    make, batch = MODELS[name]
    model, batch = make().to("cupy"), on_device(xp, batch)
    step = tnp.TrainStep(model, loss_of(batch), tnp.Adam(model.parameters()), clip=1.0, precision=precision)
    step(*batch)
    assert n_reads(lambda: step(*batch)) == 1


def test_plain_functions_read_no_more(xp, n_reads):
    make, batch = MODELS["Transformer"]
    model, batch = make().to("cupy"), on_device(xp, batch)
    step = tnp.TrainStep(model, loss_of(batch), tnp.Adam(model.parameters()), clip=1.0)
    with kernels.plain():
        step(*batch)
        assert n_reads(lambda: step(*batch)) == 1


def test_an_invalid_target_is_heard_of_before_anything_changes(xp):
    make, batch = MODELS["GPT"]
    model = make().to("cupy")
    step = tnp.TrainStep(model, tnp.CrossEntropy(), tnp.Adam(model.parameters()))
    before = model.state_dict()
    for wrong in (9, -1):
        targets = TARGETS.copy()
        targets[1, 2] = wrong
        with pytest.raises(IndexError, match=f"CrossEntropy: targets: id {wrong} is outside 0..8"):
            step(*on_device(xp, (batch[0], targets)))
    assert step.optimizer.t == 0
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value, before[name])


def test_positions_past_the_table_are_heard_of(xp):
    layer = tnp.layers.RotaryPositions(4)
    x, positions = xp.asarray(np.ones((1, 3, 4), "float32")), xp.asarray(np.array([0, 1, 2]))
    expected = backend.to_numpy(layer.forward(x, positions=positions))
    with backend.reading_at_the_end():
        y = layer.forward(x, positions=positions)
    np.testing.assert_array_equal(backend.to_numpy(y), expected)
    with pytest.raises(ValueError, match="may be at most 2 here, got 7"), backend.reading_at_the_end():
        layer.check_positions(positions + 5, (1, 3))


def test_reading_at_the_end():
    """Everything noted down is read together, in order, and what comes first raises first."""
    heard = []
    with backend.reading_at_the_end():
        backend.read(lambda a, b: heard.append((a, b)), np.float32(1.5), np.int64(2**40 + 1))
        backend.read(heard.append, np.array(True))
        assert backend.is_reading_late()
        assert heard == []
    assert heard == [(1.5, 2**40 + 1), 1.0]
    backend.read(heard.append, np.float32(2.5))
    assert not backend.is_reading_late()
    assert heard[-1] == 2.5


def test_tf32_needs_a_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(RuntimeError, match="no usable GPU"):
        backend.allow_tf32()


@pytest.mark.gpu
def test_tf32_rounds_the_factors_only_while_allowed():
    """1 + 2^-12 is 1 in TF32's ten bits."""
    import cupy

    a, b = cupy.full((64, 64), 1 + 2.0**-12, np.float32), cupy.eye(64, dtype=np.float32)
    try:
        backend.allow_tf32()
        assert float((a @ b)[0, 0]) == 1.0
    finally:
        backend.allow_tf32(False)
    assert float((a @ b)[0, 0]) == 1 + 2.0**-12
