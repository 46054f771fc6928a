"""Each fused kernel computes what its plain twin computes: on a GPU, and compiled for the CPU where there is none.

Both sum in float32 for float16 and bfloat16 and round once, so results differ by the rounding of the sums, which are
taken in another order, and so now and then by one last digit.
"""

import shutil

import numpy as np
import pytest
from stand_in_gpu import RawModule, stand_in

import transformer_np as tnp
from transformer_np import kernels
from transformer_np.backend import float_dtype, is_half, to_numpy
from transformer_np.layers import GELU, Dropout, LayerNorm, RMSNorm, Softmax
from transformer_np.layers.softmax import softmax_backward, softmax_in_place
from transformer_np.losses import gradient_of, scores_of
from transformer_np.optim.adam import adam_step_plain
from transformer_np.optim.clipping import sums_of_squares

DTYPES = ["float32", "float64", "float16", "bfloat16"]
LENGTHS = [1, 2, 31, 33, 130, 515, 5000]
EPS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


@pytest.fixture(params=DTYPES)
def dtype(request):
    if request.param == "bfloat16":
        pytest.importorskip("ml_dtypes")
    return float_dtype(request.param)


def both_ways(function):
    """Return what `function` gives with the kernels and with the plain functions, as float64 arrays in lists."""

    def run():
        results = function()
        return [to_numpy(a).astype(np.float64) for a in (results if isinstance(results, tuple) else (results,))]

    with kernels.plain():
        plain = run()
    return run(), plain


def assert_twins(function, dtype, digits=8, rounded=0):
    """Apart by the last digit of each number, and `digits` last digits of the largest number in the type of the sums.

    `rounded`: how many digits of the arrays' own type more, where the plain function keeps something rounded to it.
    """
    in_sums = EPS["float32" if dtype.itemsize == 2 else dtype.name]
    for fused, plain in zip(*both_ways(function), strict=True):
        assert fused.shape == plain.shape
        assert np.isfinite(plain).all()
        atol = (digits * in_sums + rounded * EPS[dtype.name]) * abs(plain).max()
        np.testing.assert_allclose(fused, plain, rtol=2 * EPS[dtype.name], atol=atol)


def normal(xp, shape, dtype, seed=0, scale=1.0):
    return xp.asarray((scale * np.random.default_rng(seed).standard_normal(shape)).astype(dtype))


@pytest.mark.parametrize("n", LENGTHS)
def test_softmax(xp, dtype, n):
    x, dy = normal(xp, (3, n), dtype, scale=4), normal(xp, (3, n), dtype, seed=1)

    def run():
        y = softmax_in_place(x.copy())
        return y, softmax_backward(dy, y), softmax_backward(dy.copy(), y, out=dy.copy())

    assert_twins(run, dtype, digits=40)  # of dy - sum(dy * y) little may be left


def masks(b, h, t, s):
    """Masks of every kind, each with a row or more that may look nowhere."""
    rng = np.random.default_rng(2)
    for shape in ((t, s), (b, 1, 1, s), (1, 1, t, s), (b, h, t, s), (b, 1, t, 1)):
        mask = rng.random(shape) < 0.6
        mask[(0,) * (mask.ndim - 1)] = False
        yield mask


@pytest.mark.parametrize("s", [1, 5, 40, 300])
def test_masked_softmax(xp, dtype, s):
    shape = (2, 3, 4, s)
    x = normal(xp, shape, dtype, scale=4)
    for mask in masks(*shape):
        mask = xp.asarray(mask)
        assert_twins(lambda mask=mask: softmax_in_place(x.copy(), mask), dtype)
        y = to_numpy(softmax_in_place(x.copy(), mask)).astype(np.float64)
        allowed = np.broadcast_to(to_numpy(mask), shape)
        assert (y[~allowed] == 0).all()
        np.testing.assert_allclose(y.sum(-1), allowed.any(-1), atol=s * EPS[dtype.name])


def test_softmax_of_other_layouts(xp):
    """Fewer and more axes than four, and an array that is not contiguous, for which the plain function steps in."""
    for shape in ((6,), (2, 6), (2, 3, 6), (2, 1, 2, 3, 6)):
        mask = xp.asarray(np.random.default_rng(0).random(shape) < 0.7)
        x = normal(xp, shape, np.dtype("float32"))
        assert_twins(lambda x=x, mask=mask: Softmax().forward(x, mask), x.dtype)
    x = normal(xp, (6, 4), np.dtype("float32"))
    assert_twins(lambda: softmax_in_place(x.copy().swapaxes(0, 1)), x.dtype)
    assert_twins(lambda: softmax_backward(x.swapaxes(0, 1), x.swapaxes(0, 1)), x.dtype)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
def test_norms(xp, dtype, n, kind):
    x, dy = normal(xp, (2, 2, n), dtype, scale=3) + dtype.type(2), normal(xp, (2, 2, n), dtype, seed=1)
    gamma, beta = normal(xp, (n,), dtype, seed=2), normal(xp, (n,), dtype, seed=3)

    def run():
        layer = kind(n, eps=0.1, dtype=dtype)
        layer.gamma.data = gamma
        if kind is LayerNorm:
            layer.beta.data = beta
        y = layer.forward(x)
        dx = layer.backward(dy)
        assert y.dtype == dx.dtype == layer.gamma.grad.dtype == dtype
        return y, dx, *(p.grad for p in layer.parameters())

    # n is kept rounded, and where it falls the other way, so does what it is multiplied by and added up to.
    assert_twins(run, dtype, digits=40, rounded=1 if is_half(x) else 0)


@pytest.mark.parametrize("spread", ["all", "others"])
@pytest.mark.parametrize("ignored", [None, 0, -100])
@pytest.mark.parametrize("v", [2, 33, 515, 5000])
def test_cross_entropy(xp, dtype, v, ignored, spread):
    rng = np.random.default_rng(0)
    logits, targets = normal(xp, (4, v), dtype, scale=5), rng.integers(0, v, 4)
    targets[1] = targets[1] if ignored is None else ignored
    targets = xp.asarray(targets)

    def run():
        loss_fn = tnp.CrossEntropy(0.1, ignored, spread)
        loss = loss_fn.forward(logits, targets)
        return np.asarray(loss), loss_fn.backward(64.0)

    assert_twins(run, dtype, digits=20)


def test_cross_entropy_of_rows(xp, dtype):
    rows, targets = normal(xp, (5, 70), dtype, scale=5), xp.asarray(np.array([1, 69, 3, 3, 8], np.int32))
    scale, q = normal(xp, (5,), np.dtype("float32")), (0.9, 0.01, 0.0)

    def run():
        kept, total, score = scores_of(rows, targets, q, 0)
        return total, score, gradient_of(kept, total, targets, scale.astype(total.dtype), q, 0).astype(dtype)

    assert_twins(run, dtype, digits=20)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("shape", [(), (1,), (255,), (257,), (3, 5, 7)])
def test_gelu(xp, dtype, shape, approximate):
    x, dy = normal(xp, shape, dtype, scale=4), normal(xp, shape, dtype, seed=1)

    def run():
        layer = GELU(approximate)
        return layer.forward(x), layer.backward(dy)

    # Of 1 - t² little may be left; and the plain one keeps Phi or t rounded, where the kernel computes it anew.
    assert_twins(run, dtype, digits=60, rounded=4 if is_half(x) else 0)


def test_gelu_far_out(xp):
    x = xp.asarray(np.array([-np.inf, -1e30, -40, -12, 12, 40, 1e30, np.inf, np.nan], "float32"))
    for approximate in ("none", "tanh"):
        y = to_numpy(GELU(approximate).forward(x))
        np.testing.assert_allclose(y[1:8], [0, 0, 0, 12, 40, 1e30, np.inf], atol=1e-30)
        assert np.isnan(y[8])


@pytest.mark.parametrize("shape", [(), (1,), (15,), (16, 1), (4097,), (3, 40, 100)])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.999])
def test_dropout(xp, dtype, p, shape):
    """The same masks to the bit, whether the kernel draws the random bits or NumPy's own Philox does."""
    layer, x, dy = Dropout(p, seed=0), normal(xp, shape, dtype), normal(xp, shape, dtype, seed=1)
    assert layer.draw_mask(x).dtype == layer.forward(x).dtype == dtype
    mark = layer.mark()

    def run():
        layer.rewind(mark)
        first, second = layer.draw_mask(x), layer.draw_mask(x)
        y = layer.forward(x)
        return first, second, y, layer.backward(dy)

    assert_twins(run, dtype, digits=0)
    fused, plain = both_ways(lambda: run()[:2])
    np.testing.assert_array_equal(fused[0], plain[0])
    np.testing.assert_array_equal(fused[1], plain[1])


def test_dropout_on_a_gpu_drops_as_often_as_it_should(xp):
    """Within five standard deviations, and as often in each column."""
    mask = to_numpy(Dropout(0.3, seed=3).draw_mask(normal(xp, (1000, 64), np.dtype("float32"))))
    assert abs((mask == 0).mean() - 0.3) < 5 * (0.3 * 0.7 / mask.size) ** 0.5
    assert abs((mask == 0).mean(0) - 0.3).max() < 5 * (0.3 * 0.7 / len(mask)) ** 0.5
    assert set(np.unique(mask)) == {np.float32(0), np.float32(65536 / (65536 - round(0.3 * 65536)))}


@pytest.mark.parametrize("replaying", [False, True])
def test_dropout_on_a_gpu_draws_anew_or_replays(xp, replaying):
    layer, x = Dropout(0.5, seed=0), normal(xp, (40, 30), np.dtype("float32"))
    layer.replay(replaying)
    first, second = (to_numpy(layer.forward(x)) for _ in range(2))
    assert (first == second).all() == replaying


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("shape", [(1,), (300,), (7, 11)])
def test_adam(xp, dtype, decay, shape):
    p, g, m, v = (normal(xp, shape, np.dtype(dtype), seed) for seed in range(4))

    def run():
        arrays = [p.copy(), g, m.copy(), v * v]
        adam_step_plain(*arrays, 0.01, (0.9, 0.98), 1e-9, 0.3, decay)
        return arrays[0], arrays[2], arrays[3]

    assert_twins(run, np.dtype(dtype), digits=4)


def test_norm_of_all_gradients(xp, dtype):
    grads = [normal(xp, shape, dtype, scale=100) for shape in ((1,), (300,), (70, 300), (5, 1))]
    fused, plain = both_ways(lambda: sums_of_squares(*grads))
    np.testing.assert_allclose(fused, plain, rtol=1e-13)
    assert np.isinf(to_numpy(sums_of_squares(xp.asarray(np.array([1, np.inf], "float32")))))
    assert to_numpy(sums_of_squares(xp.asarray(np.array([1e30, 1e30], "float32")))) == pytest.approx(2e60)


def trained(device, asarray):
    """Losses and parameters of three steps of a model in which every kernel takes part but that of dropout."""
    model = tnp.Transformer(9, 9, 8, 2, 1, 1, 12, 0.0, 6, activation="gelu", norm="pre", dtype="float64").to(device)
    src, tgt = asarray(np.array([[3, 4, 0], [5, 6, 2]])), asarray(np.array([[1, 4, 4, 0], [1, 5, 6, 7]]))
    step = tnp.TrainStep(model, tnp.CrossEntropy(0.1, 0), tnp.Adam(model.parameters(), lr=0.01), clip=0.5)
    return [step(src, tgt, tgt) for _ in range(3)], model.state_dict()


def test_a_model_learns_the_same(xp):
    losses, state = trained("numpy", np.asarray)
    fused_losses, fused_state = trained("cupy", xp.asarray)
    np.testing.assert_allclose(fused_losses, losses, rtol=1e-12)
    for name, value in state.items():
        np.testing.assert_allclose(fused_state[name], value, rtol=0, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_model_learns_the_same_in_mixed_precision(xp, precision):
    """The first loss is of the same parameters: as near to float32's as rounding allows."""
    pytest.importorskip("ml_dtypes")
    src, tgt = (xp.asarray(np.random.default_rng(i).integers(1, 9, (3, 5))) for i in range(2))
    losses = []
    for chosen in (None, precision):
        model = tnp.Transformer(9, 9, 8, 2, 1, 1, 12, 0.0, 6, activation="gelu", norm="pre").to("cupy")
        step = tnp.TrainStep(model, tnp.CrossEntropy(0.1), tnp.Adam(model.parameters()), clip=1.0, precision=chosen)
        losses.append([step(src, tgt, tgt) for _ in range(4)])
    assert losses[1][0] == pytest.approx(losses[0][0], rel=2 * EPS[precision])
    assert losses[1][-1] < losses[1][0]


def test_the_order_of_the_threads_does_not_matter(monkeypatch):
    """Were a barrier missing, a thread that runs early would read what another has not written yet."""
    if shutil.which("g++") is None:
        pytest.skip("needs a C++ compiler")
    xp, results = stand_in(monkeypatch, kernels=True), []
    for backwards in (False, True):
        monkeypatch.setattr(RawModule, "backwards", backwards)
        x, targets = normal(xp, (3, 1100), np.dtype("float32")), xp.asarray(np.array([0, 5, 1099]))
        y = softmax_in_place(x.copy())
        norm, loss_fn = LayerNorm(1100), tnp.CrossEntropy(0.1)
        for p in norm.parameters():
            p.data = xp.asarray(p.data)
        arrays = [y, softmax_backward(x, y), norm.forward(x), norm.backward(x), sums_of_squares(x)]
        loss_fn.forward(x, targets)
        results.append([to_numpy(a).tobytes() for a in (*arrays, loss_fn.backward())])
    assert results[0] == results[1]


def test_plain_functions_on_numpy_arrays():
    """Without CuPy nothing changes, and each kernel's plain twin is what one reads."""
    x = np.random.default_rng(0).standard_normal((3, 4))
    np.testing.assert_array_equal(softmax_in_place(x.copy()), softmax_in_place.__wrapped__(x.copy()))
    assert softmax_in_place.__doc__ == softmax_in_place.__wrapped__.__doc__
