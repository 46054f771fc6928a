"""The stand-in for CuPy refuses what CuPy refuses: else a call that fails on a GPU alone would pass unseen."""

import numpy as np
import pytest
from stand_in_gpu import DeviceArray, fake_gpu  # noqa: F401 (a fixture)

from transformer_np.backend import float_dtype


@pytest.fixture
def bfloat16():
    pytest.importorskip("ml_dtypes")
    return float_dtype("bfloat16")


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda xp, x: xp.vecdot_of(x, x), AttributeError),  # no function of NumPy's either
        (lambda xp, x: xp.insert(x, 0, x), AttributeError),  # of NumPy's alone
        (lambda xp, x: xp.exp(x, where=x > 0), TypeError),
        (lambda xp, x: xp.argsort(x, stable=True), TypeError),
        (lambda xp, x: x.max(axis=1, initial=0), TypeError),
        (lambda xp, x: x.item(0), TypeError),
        (lambda xp, x: x[:, 1:].sort(axis=1), NotImplementedError),
        (lambda xp, x: x + np.ones(3), TypeError),
        (lambda xp, x: np.exp(x), TypeError),
    ],
)
def test_what_numpy_takes_and_cupy_does_not(fake_gpu, call, error):  # noqa: F811
    x = fake_gpu.asarray(np.ones((2, 3)))
    with pytest.raises(error):
        call(fake_gpu, x)


def test_bfloat16(fake_gpu, bfloat16):  # noqa: F811
    x = fake_gpu.asarray(np.ones((2, 3, 3), bfloat16))
    assert fake_gpu.where(x > 0, x, 0).dtype == np.float32
    assert (x[0] @ x[0]).dtype == bfloat16
    for refused in (lambda: x @ x, lambda: fake_gpu.sort(x), lambda: fake_gpu.add.at(x, 0, x[0])):
        with pytest.raises((TypeError, NotImplementedError)):
            refused()


def test_a_boolean_index_waits(fake_gpu):  # noqa: F811
    x = fake_gpu.asarray(np.ones((2, 3)))
    DeviceArray.n_read = 0
    x[x > 0] = 2
    assert DeviceArray.n_read == 1
    fake_gpu.copyto(x, 3, where=x > 0)
    assert DeviceArray.n_read == 1
