"""The bug pool's mistakes with array libraries: dtypes, devices, BLAS and random numbers."""

import math

import numpy as np
import pytest
from stand_in_gpu import DeviceArray, fake_gpu  # noqa: F401 (a fixture)

import transformer_np as tnp
from transformer_np.layers import Dropout, Linear
from transformer_np.layers.embedding import add_rows, add_rows_plain


def test_bp63_the_stand_in_refuses_numpy(fake_gpu):  # noqa: F811
    a = fake_gpu.asarray(np.ones(3))
    for forbidden in (lambda: np.exp(a), lambda: np.asarray(a), lambda: np.where(a, 1, 0), lambda: np.ones(3) + a):
        with pytest.raises(TypeError):
            forbidden()
    assert type(a + 1) is type(a.sum()) is DeviceArray


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_bp63_cupy_implicit_conversion(fake_gpu, norm, positions):  # noqa: F811
    """Train a whole model on arrays that NumPy may not touch, and get the same numbers as with NumPy."""
    results = []
    for name in ("numpy", "cupy"):
        model = tnp.Transformer(
            7, 8, 8, 2, 1, 1, 12, dropout=0.0, norm=norm, positions=positions, tie_embeddings="target", dtype="float64"
        ).to(name)
        put = fake_gpu.asarray if name == "cupy" else np.asarray
        src, tgt = put(np.array([[3, 4, 0], [5, 6, 2]])), put(np.array([[1, 4, 4, 0], [1, 5, 6, 7]]))
        optimiser = tnp.Adam(model.parameters(), lr=0.01)
        loss_fn = tnp.CrossEntropy(label_smoothing=0.1, ignore_index=0)
        for _ in range(3):
            optimiser.zero_grad()
            loss = loss_fn(model.forward(src, tgt), tgt)
            model.backward(loss_fn.backward())
            norm_before = tnp.clip_grad_norm(model.parameters(), 0.1)
            optimiser.step()
        translation = tnp.greedy(model, src, max_len=4)
        results.append((loss, norm_before, model.state_dict(), tnp.optim.Adam.state_dict(optimiser), translation))
    (loss, norm_before, state, _, translation), (gpu_loss, gpu_norm, gpu_state, _, gpu_translation) = results
    assert gpu_loss == pytest.approx(loss, rel=1e-12)
    assert gpu_norm == pytest.approx(norm_before, rel=1e-12)
    for key, value in state.items():
        assert type(gpu_state[key]) is np.ndarray
        np.testing.assert_allclose(gpu_state[key], value, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(gpu_translation.get(), translation)


def test_bp63_dropout_on_a_device(fake_gpu):  # noqa: F811
    layer = Dropout(0.25, seed=0)
    y = layer(fake_gpu.asarray(np.ones((50, 40), "float32")))
    assert type(y) is DeviceArray
    assert set(np.unique(y.get())) == {np.float32(0), np.float32(1 / 0.75)}
    np.testing.assert_array_equal(layer.backward(fake_gpu.asarray(np.ones((50, 40), "float32"))).get(), y.get())


@pytest.mark.parametrize("add", [add_rows, add_rows_plain])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_bp64_scatter_add(add, dtype):
    table = np.zeros((3, 1), dtype)
    add(table, np.array([1, 1, 1]), np.array([[1], [2], [3]], dtype))
    assert table.dtype == dtype
    np.testing.assert_array_equal(table, [[0], [6], [0]])


def test_bp64_both_ways_agree():
    rng = np.random.default_rng(0)
    ids, rows = rng.integers(0, 20, 200), rng.standard_normal((200, 5))
    one, other = np.ones((25, 5)), np.ones((25, 5))
    add_rows(one, ids, rows)
    add_rows_plain(other, ids, rows)
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(one[20:], 1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("as_numpy", [False, True])
def test_bp65_numpy_2_promotion(dtype, as_numpy):
    """No float64 sneaks in, not even where sizes and options are NumPy scalars, which are no longer weak."""
    number, size = (np.float64, np.int64) if as_numpy else (float, int)
    model = tnp.Transformer(
        7, 8, size(8), size(2), 1, 1, size(12), dropout=number(0.1), norm="pre", eps=number(1e-5), dtype=dtype
    )
    loss_fn = tnp.CrossEntropy(label_smoothing=number(0.1), ignore_index=0)
    optimiser = tnp.AdamW(model.parameters(), lr=number(0.01), eps=number(1e-8), weight_decay=number(0.1))
    src, tgt = np.array([[3, 4, 0], [5, 6, 2]]), np.array([[1, 4, 4, 0], [1, 5, 6, 7]])
    logits = model.forward(src, tgt)
    loss_fn(logits, tgt)
    dlogits = loss_fn.backward()
    model.backward(dlogits)
    tnp.clip_grad_norm(model.parameters(), number(0.01))
    optimiser.step()
    weights = model.decoder.layers[0].cross_attention.weights
    found = {a.dtype.name for a in (logits, dlogits, weights, *optimiser.state["m"], *optimiser.state["v"])}
    found |= {a.dtype.name for p in model.parameters() for a in (p.data, p.grad)}
    assert found == {dtype}


def test_bp66_accelerate_warnings():
    # Some BLAS raise floating-point flags on exact products: judge the values, not the flags.
    layer = Linear(15, 15, bias=False, dtype="float64")
    layer.weight.data[...] = np.eye(15)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(layer(np.eye(15)), np.eye(15))


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-5), ("float64", 1e-13)])
def test_bp67_blas_order_and_threads(dtype, rtol):
    # A row alone may take another BLAS kernel than a row in a batch, and sum in another order: equal up to rounding.
    layer = Linear(90, 128, seed=0, dtype=dtype)
    x = np.random.default_rng(0).standard_normal((200, 90)).astype(dtype)
    together = layer(x)
    scale = float(abs(together).max())
    for i in (0, 7, 199):
        np.testing.assert_allclose(layer(x[i : i + 1])[0], together[i], rtol=0, atol=rtol * scale)


def test_bp73_same_random_numbers_everywhere():
    streams = [np.random.default_rng(s).integers(100, size=3).tolist() for s in np.random.SeedSequence(0).spawn(2)]
    assert streams[0] != streams[1]
    before = np.random.get_state()  # noqa: NPY002 (to show that nobody uses it)
    make = lambda seed: tnp.Transformer(7, 8, 8, 2, 1, 1, 12, dropout=0.5, seed=seed)  # noqa: E731
    model, twin, other = make(0), make(0), make(1)
    ids = np.ones((2, 3), int)
    first, again = model.forward(ids, ids), model.forward(ids, ids)
    assert not np.array_equal(first, again)  # a new mask at every step
    np.testing.assert_array_equal(twin.forward(ids, ids), first)  # the same seed, the same run
    assert not np.array_equal(other.forward(ids, ids), first)
    after = np.random.get_state()  # noqa: NPY002
    assert before[2:] == after[2:]
    np.testing.assert_array_equal(before[1], after[1])


def test_bp73_every_dropout_has_a_stream_of_its_own():
    model = tnp.Transformer(7, 8, 8, 2, 2, 2, 8, dropout=0.5, seed=0)
    layers = [m for _, m in model.named_modules() if isinstance(m, Dropout)]
    masks = {layer(np.ones(64, "float32")).tobytes() for layer in layers}
    assert len(masks) == len(layers) > 10
    weights = [p.data for p in model.parameters() if p.data.ndim == 2 and p.shape == (8, 8)]
    assert len({w.tobytes() for w in weights}) == len(weights)
    assert math.isfinite(float(weights[0].sum()))
