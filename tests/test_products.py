"""Products of stacks of matrices are `@`, however the factors lie in memory, on the CPU and by cuBLAS."""

import numpy as np
import pytest

from transformer_np import kernels
from transformer_np.backend import float_dtype, to_numpy
from transformer_np.products import as_stack, matmul


def turned(x):
    return x.swapaxes(-1, -2)


EPS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
N, K, M = 3, 4, 5
# What is done to an array (2, 6, r, c) before it is a factor: transposed and back, cut out of a larger one, heads
# moved, one matrix for all, and a single row or column.
LAYOUTS = {
    "as it is": lambda xp, x: x,
    "turned": lambda xp, x: turned(xp.ascontiguousarray(turned(x))),
    "columns of a wider one": lambda xp, x: xp.concatenate([x, x], -1)[..., : x.shape[-1]],
    "rows of a taller one": lambda xp, x: xp.concatenate([x, x], -2)[..., : x.shape[-2], :],
    "turned, of a wider one": lambda xp, x: turned(xp.concatenate([turned(x)] * 2, -1)[..., : x.shape[-2]]),
    "heads moved": lambda xp, x: xp.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2),
    "every second column": lambda xp, x: x.repeat(2, axis=-1)[..., ::2],
    "one for all": lambda xp, x: xp.broadcast_to(x[:1, :1], x.shape),
    "one for each sentence": lambda xp, x: xp.broadcast_to(x[:, :1], x.shape),
}


@pytest.fixture(params=["float32", "float64", "float16", "bfloat16"])
def dtype(request):
    if request.param == "bfloat16":
        pytest.importorskip("ml_dtypes")
    return float_dtype(request.param)


def factors(xp, dtype, n, k, m, leading=(2, 6)):
    rng = np.random.default_rng(0)
    return (xp.asarray(rng.standard_normal((*leading, *shape)).astype(dtype)) for shape in ((n, k), (k, m)))


def assert_product(a, b):
    """Every entry is the sum of k products, rounded to the type of the factors; float16 and bfloat16 sum in float32."""
    c, name = matmul(a, b), a.dtype.name
    a, b, c = (to_numpy(x).astype(np.float64) for x in (a, b, c))
    sums = EPS["float64"] if name == "float64" else EPS["float32"]
    assert c.shape == (*a.shape[:-1], b.shape[-1])
    np.testing.assert_allclose(c, a @ b, rtol=2 * EPS[name], atol=2 * a.shape[-1] * sums * (abs(a) @ abs(b)).max())
    return c


@pytest.mark.parametrize("second", LAYOUTS)
@pytest.mark.parametrize("first", LAYOUTS)
def test_layouts(xp, first, second):
    a, b = factors(xp, np.dtype("float64"), N, K, M)
    assert_product(LAYOUTS[first](xp, a), LAYOUTS[second](xp, b))


@pytest.mark.parametrize("sizes", [(1, 4, 5), (3, 1, 5), (3, 4, 1), (1, 1, 5), (3, 1, 1), (1, 4, 1), (1, 1, 1)])
def test_single_rows_and_columns(xp, sizes):
    for layout in LAYOUTS.values():
        a, b = factors(xp, np.dtype("float64"), *sizes)
        assert_product(layout(xp, a), layout(xp, b))


@pytest.mark.parametrize("leading", [(), (2,), (1, 1), (2, 1), (1, 3), (2, 3, 2)])
def test_leading_axes(xp, leading):
    a, b = factors(xp, np.dtype("float64"), N, K, M, leading)
    assert_product(a, b)
    assert_product(turned(b), turned(a))


def test_types(xp, dtype):
    a, b = factors(xp, dtype, N, K, M)
    assert_product(a, b)
    assert matmul(a, b).dtype == dtype
    with kernels.plain():
        assert_product(a, b)


def test_transposed_factors_are_not_copied(xp):
    """The (T, S) weights are the largest arrays of all, and backward takes them turned."""
    a, _ = factors(xp, np.dtype("float32"), N, K, M)
    a = turned(a)
    stack, is_turned, width, step = as_stack(a)
    assert stack is a
    assert (is_turned, width, step) == (True, K, N * K)


def test_on_the_cpu_it_is_the_operator():
    a, b = factors(np, np.dtype("float32"), N, K, M)
    np.testing.assert_array_equal(matmul(a, b), a @ b)
