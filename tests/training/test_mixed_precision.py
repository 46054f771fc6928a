"""Mixed precision: as near to float32 as its digits allow, nothing promoted, and overflow only costs a step."""

import math

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.backend import float_dtype
from transformer_np.layers import (
    BlockwiseAttention,
    Dropout,
    Embedding,
    LayerNorm,
    RMSNorm,
    ScaledDotProductAttention,
    Softmax,
)
from transformer_np.training.mixed_precision import HalfCopy, LossScaler

EPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}  # the largest relative error of rounding once
IDS, OTHER_IDS, TARGETS = np.random.default_rng(0).integers(1, 11, (3, 4, 12))
IMAGES = np.random.default_rng(1).standard_normal((4, 2, 12, 12)).astype("float32")
MODELS = {
    "Transformer": (lambda p: tnp.Transformer(11, 11, 16, 2, 1, 1, 32, p, 12), (IDS, OTHER_IDS, TARGETS)),
    "GPT": (lambda p: tnp.GPT(11, 16, 2, 2, dropout=p, max_len=12), (IDS, TARGETS)),
    "Llama": (lambda p: tnp.Llama(11, 16, 4, 2, n_kv_heads=2, dropout=p), (IDS, TARGETS)),
    "BERT": (lambda p: tnp.BERT(11, 16, 2, 2, 32, p, 12, heads="words"), (IDS, TARGETS)),
    "T5": (
        lambda p: tnp.T5(11, 16, 2, 1, 1, 32, d_head=8, dropout=p, activation="gelu_tanh", gated=True),
        (IDS, OTHER_IDS, TARGETS),
    ),
    "ViT": (lambda p: tnp.ViT(12, 3, 2, 5, 16, 2, 2, 32, p), (IMAGES, np.array([0, 1, 2, 3]))),
    "ConvEncoder": (lambda p: tnp.ConvEncoder(11, d_model=16, n_layers=2, dropout=p), (IDS, TARGETS)),
    "Seq2SeqRNN": (lambda p: tnp.Seq2SeqRNN(11, 11, 16, dropout=p), (IDS, OTHER_IDS, TARGETS)),
}


@pytest.fixture(params=["float16", "bfloat16"])
def precision(request):
    if request.param == "bfloat16":
        pytest.importorskip("ml_dtypes")
    return request.param


def step_of(model, precision=None, lr=1e-20, clip=1e9, scale=1024.0):
    """A step that computes gradients, and changes nothing worth mentioning."""
    loss_fn = tnp.CrossEntropy(label_smoothing=0.1)
    step = tnp.TrainStep(model, loss_fn, tnp.SGD(model.parameters(), lr=lr), clip=clip, precision=precision)
    if step.scaler is not None:
        step.scaler.scale = scale
    return step


def relative(one, other):
    """The length of the difference of all gradients, as a part of their length."""
    difference = np.concatenate([(p.grad - q.grad).reshape(-1) for p, q in zip(one, other, strict=True)])
    return float(np.linalg.norm(difference) / np.linalg.norm(np.concatenate([q.grad.reshape(-1) for q in other])))


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_float32_but_for_rounding(name, precision):
    """Some 30 roundings lie one after another in such a model, so 12 times that of one is little.

    Without ReLU, but where the model has no other: one number that falls on the other side of its kink is more.
    """
    (make, batch), results = MODELS[name], []
    for chosen in (None, precision):
        model = make(0.0)
        loss = step_of(model, chosen)(*batch)
        results.append((loss, model.parameters()))
    (loss, parameters), (half_loss, half_parameters) = results
    assert {p.data.dtype for p in half_parameters} == {p.grad.dtype for p in half_parameters} == {np.dtype("float32")}
    assert half_loss == pytest.approx(loss, rel=2 * EPS[precision])
    assert half_loss != loss
    assert relative(half_parameters, parameters) < 12 * EPS[precision]


def arrays_kept(model):
    """Every array that a module keeps for backward."""
    for _, module in model.named_modules():
        values, *_ = module._saved if module._saved is not None else ((),)
        yield from (value for value in values if isinstance(value, np.ndarray))


@pytest.mark.parametrize("name", ["Transformer", "GPT", "Llama", "BERT", "T5", "ViT", "ConvEncoder"])
def test_nothing_promotes(name, precision):
    """Besides ids and masks all is of the chosen type; float32 are the norms' roots, one number a position."""
    make, (*inputs, targets) = MODELS[name]
    copy = HalfCopy(make(0.1), precision)
    model, dtype = copy.refresh(), float_dtype(precision)
    logits = model.forward(*copy.rounded(inputs))
    kept = list(arrays_kept(model))
    wide = [a for a in kept if a.dtype not in (dtype, np.dtype(bool)) and a.dtype.kind not in "iu"]
    assert all(a.dtype == np.float32 and a.shape[-1] == 1 for a in wide)
    assert logits.dtype == dtype
    loss_fn = tnp.CrossEntropy(label_smoothing=0.1)
    loss = loss_fn.forward(logits, targets)
    assert math.isfinite(loss)
    dlogits = loss_fn.backward(256.0)
    assert dlogits.dtype == dtype
    model.backward(dlogits)
    assert {a.dtype for p in model.parameters() for a in (p.data, p.grad)} == {dtype}
    assert {p.data.dtype for p in copy.original.parameters()} == {np.dtype("float32")}


def losses_of(precision, n_steps=60):
    """Learn to copy, with dropout and clipping; the mean loss of the last ten steps."""
    model = tnp.Transformer(11, 11, 16, 2, 1, 1, 32, 0.0, 12, norm="pre", seed=1)
    loss_fn = tnp.CrossEntropy(ignore_index=0)
    step = tnp.TrainStep(model, loss_fn, tnp.Adam(model.parameters(), lr=5e-3), clip=1.0, precision=precision)
    rng, losses = np.random.default_rng(3), []
    for _ in range(n_steps):
        text = rng.integers(3, 11, (16, 5))
        begin = np.concatenate([np.ones((16, 1), int), text[:, :-1]], axis=1)
        losses.append(step(text, begin, text))
    return losses, step


def test_training_reaches_the_loss_of_float32(precision):
    """Both have fallen far; how the digits fell moves the mean of the last steps by less than a tenth of that fall."""
    losses, _ = losses_of(None)
    half_losses, step = losses_of(precision)
    first, last, half_last = losses[0], np.mean(losses[-10:]), np.mean(half_losses[-10:])
    assert last < first - 0.8
    assert abs(half_last - last) < 0.1 * (first - last)
    assert step.optimizer.t == 60 - (0 if step.scaler is None else step.scaler.n_skipped)


def test_overflow_skips_the_step_and_halves_the_scale():
    make, batch = MODELS["Transformer"]
    model = make(0.0)
    step = tnp.TrainStep(model, tnp.CrossEntropy(), tnp.Adam(model.parameters()), precision="float16")
    step.scaler.scale = 2.0**40
    before = model.state_dict()
    assert math.isfinite(step(*batch))
    assert (step.optimizer.t, step.scaler.n_skipped, step.scaler.scale) == (0, 1, 2.0**39)
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value, before[name])
    step.scaler.scale = 1024.0
    step(*batch)
    assert (step.optimizer.t, step.scaler.n_skipped, step.scaler.scale) == (1, 1, 1024.0)
    assert any(np.any(value != before[name]) for name, value in model.state_dict().items())


def test_small_gradients_vanish_without_scaling():
    """1e-9 is 0 in float16; scaled by 2^20 it is a number with eleven digits, and comes back as one."""
    gradients = []
    for scale in (1.0, 2.0**20):
        model = MODELS["GPT"][0](0.0)
        step = step_of(model, "float16", scale=scale)
        loss_fn, forward = step.loss_fn, step.loss_fn.forward
        backward = loss_fn.backward
        loss_fn.forward, loss_fn.backward = forward, lambda dloss, b=backward: b(dloss * 1e-7)
        step(*MODELS["GPT"][1])
        gradients.append(model.parameters())
    plain = MODELS["GPT"][0](0.0)
    step_of(plain)(*MODELS["GPT"][1])
    for p in plain.parameters():
        p.grad *= np.float32(1e-7)
    assert relative(gradients[0], plain.parameters()) > 0.2
    assert relative(gradients[1], plain.parameters()) < 12 * EPS["float16"]


def test_the_scale_grows_and_shrinks():
    scaler = LossScaler(8.0, growth_interval=3)
    for finite in (True, True, False, True, True, True, True):
        scaler.update(finite)
    assert (scaler.scale, scaler.n_good, scaler.n_skipped) == (8.0, 1, 1)  # halved, then doubled
    again = LossScaler(1.0)
    again.load_state_dict(scaler.state_dict())
    assert again.state_dict() == scaler.state_dict()
    with pytest.raises(ValueError, match=r"missing \[.n_good., .n_skipped.\], unexpected nothing"):
        again.load_state_dict({"scale": 2.0})
    scaler.scale = 2.0**-20
    with pytest.raises(FloatingPointError, match="even with the loss scaled by"):
        scaler.update(False)


@pytest.mark.parametrize("wrong", [{"scale": 0.0}, {"growth_factor": 1.0}, {"backoff_factor": 1.5}])
def test_wrong_scalers(wrong):
    with pytest.raises(ValueError, match="LossScaler: expected scale > 0"):
        LossScaler(**wrong)


def test_wrong_steps():
    model = MODELS["GPT"][0](0.0)
    parts = (model, tnp.CrossEntropy(), tnp.SGD(model.parameters(), lr=1.0))
    with pytest.raises(ValueError, match="give one of them"):
        tnp.TrainStep(*parts, threads=2, precision="float16")
    with pytest.raises(ValueError, match="TrainStep: precision must be one of 'float16', 'bfloat16', got 'float8'"):
        tnp.TrainStep(*parts, precision="float8")
    model.astype("float16")
    with pytest.raises(ValueError, match="the model must be float32, got float16"):
        tnp.TrainStep(*parts, precision="float16")


@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
def test_norms_of_large_numbers(kind, precision):
    """The squares of 300 numbers around 200 add up to 12 million, which float16 does not hold."""
    rng = np.random.default_rng(0)
    dtype = float_dtype(precision)
    x, dy = (rng.normal(mean, 30, (5, 300)).astype(dtype) for mean in (200, 0))
    layer, wide = kind(300, dtype=dtype), kind(300, dtype="float64")
    y, expected = layer.forward(x), wide.forward(x.astype("float64"))
    assert y.dtype == dtype
    np.testing.assert_allclose(y.astype("float64"), expected, rtol=2 * EPS[precision], atol=1e-6)
    dx, expected = layer.backward(dy), wide.backward(dy.astype("float64"))
    assert dx.dtype == dtype
    # n is kept rounded, and the means take the difference of nearly equal numbers.
    np.testing.assert_allclose(dx.astype("float64"), expected, rtol=0, atol=4 * EPS[precision] * abs(expected).max())


def test_softmax_over_many(precision):
    """5000 weights of 1/5000: in float16 a running sum would stand still, in bfloat16 at 256 already."""
    dtype = float_dtype(precision)
    x = np.zeros((2, 5000), dtype)
    layer = Softmax()
    y = layer.forward(x)
    np.testing.assert_allclose(y.astype("float64"), 1 / 5000, rtol=EPS[precision])
    dy = np.arange(10000).reshape(2, 5000).astype(dtype) / dtype.type(10000)
    dx, wide = layer.backward(dy), dy.astype("float64")
    expected = y.astype("float64") * (wide - (wide * y.astype("float64")).sum(-1, keepdims=True))
    np.testing.assert_allclose(dx.astype("float64"), expected, rtol=0, atol=2 * EPS[precision] * abs(expected).max())


def test_cross_entropy_over_many(precision):
    dtype = float_dtype(precision)
    rng = np.random.default_rng(0)
    logits, targets = (5 * rng.standard_normal((40, 3000))).astype(dtype), rng.integers(0, 3000, 40)
    loss_fn, wide = (tnp.CrossEntropy(label_smoothing=0.1) for _ in range(2))
    assert loss_fn.forward(logits, targets) == pytest.approx(wide.forward(logits.astype("float64"), targets), rel=1e-5)
    d, expected = loss_fn.backward(1024.0), wide.backward(1024.0)
    assert d.dtype == dtype
    np.testing.assert_allclose(d.astype("float64"), expected, rtol=2 * EPS[precision], atol=1e-6)


def test_a_frequent_token_gathers_all_of_its_gradient(precision):
    """4096 times 1: summed one by one, float16 ends at 2048 and bfloat16 at 256."""
    layer = Embedding(3, 4, scaled=False, dtype=float_dtype(precision))
    ids = np.full((1, 4096), 1)
    layer.backward(np.ones_like(layer.forward(ids)))
    np.testing.assert_array_equal(layer.weight.grad.astype("float64"), [[0] * 4, [4096] * 4, [0] * 4])


@pytest.mark.parametrize("kind", [tnp.Adam, tnp.AdamW, tnp.SGD])
def test_optimisers_compute_in_float32(kind, precision):
    """The squares of gradients of 1e-4 are 1e-8: 0 in float16, and so would be what the step is divided by."""
    dtype = float_dtype(precision)
    rng = np.random.default_rng(0)
    value, gradient = rng.standard_normal((6, 5)).astype(dtype), (1e-4 * rng.standard_normal((6, 5))).astype(dtype)
    half, single = tnp.Parameter(value.copy()), tnp.Parameter(value.astype("float32"))
    options = {"momentum": 0.9} if kind is tnp.SGD else {}
    optimisers = [kind([p], lr=0.05, **options) for p in (half, single)]
    half.grad, single.grad = gradient, gradient.astype("float32")
    for optimiser in optimisers:
        optimiser.step()
    assert half.data.dtype == dtype
    assert all(buffer.dtype == np.float32 for several in optimisers[0].state.values() for buffer in several)
    np.testing.assert_array_equal(half.data, single.data.astype(dtype))
    again = kind([half], lr=0.05, **options)
    again.load_state_dict(optimisers[0].state_dict())
    assert again.t == 1


def test_blockwise_attention(precision):
    """The running sums are wide: as near to float64 as plain attention, over 40 blocks."""
    rng, dtype = np.random.default_rng(0), float_dtype(precision)
    q, k, v, dy = (rng.standard_normal((1, 2, 80, 8)).astype(dtype) for _ in range(4))
    errors = []
    for layer in (BlockwiseAttention(block=2), ScaledDotProductAttention()):
        results = [layer.forward(q, k, v), *layer.backward(dy)]
        assert {a.dtype for a in results} == {dtype}
        wide = [a.astype("float64") for a in (q, k, v, dy)]
        expected = [layer.forward(*wide[:3]), *layer.backward(wide[3])]
        errors.append(max(abs(a - b).max() / abs(b).max() for a, b in zip(results, expected, strict=True)))
    assert errors[0] < max(errors[1], EPS[precision]) < 4 * EPS[precision]


def test_dropout_keeps_the_type(precision):
    x = np.ones((50, 40), float_dtype(precision))
    layer = Dropout(0.25, seed=0)
    y = layer.forward(x)
    assert y.dtype == layer.backward(x).dtype == x.dtype
    assert set(np.unique(y.astype("float64"))) == {0.0, float(x.dtype.type(4 / 3))}


def test_bfloat16_is_found_by_name():
    pytest.importorskip("ml_dtypes")
    assert tnp.GPT(11, 16, 2, 1, dtype="bfloat16").dtype.name == "bfloat16"
    with pytest.raises(ValueError, match="LayerNorm: dtype must be a floating-point type, got 'int32'"):
        LayerNorm(3, dtype="int32")
