"""What all tests share: where a GPU is missing, tests marked `gpu` are skipped, and say so."""

import shutil
import signal
import threading

import pytest
from stand_in_gpu import stand_in
from threadpoolctl import threadpool_limits

from transformer_np.backend import gpu_available


def pytest_collection_modifyitems(items):
    """Skip what needs a GPU where there is none."""
    if gpu_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs CuPy and a GPU"))


@pytest.fixture(scope="session", autouse=True)
def one_blas_thread():
    """Matrix products on one thread: the tests themselves run side by side, one process a core."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(scope="session", autouse=True)
def ctrl_c():
    """As in a terminal: a shell's background job is told to ignore Ctrl-C, which some tests press."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, before)


@pytest.fixture(params=["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
def device(request):
    """Each test that asks for it runs on NumPy, and the same lines again on CuPy."""
    return request.param


@pytest.fixture(params=["compiled for the CPU", pytest.param("cupy", marks=pytest.mark.gpu)])
def xp(request, monkeypatch):
    """CuPy with our kernels; and, for machines without a GPU, its stand-in with the same kernels compiled by g++."""
    if request.param == "cupy":
        return pytest.importorskip("cupy")
    if shutil.which("g++") is None:
        pytest.skip("needs a C++ compiler")
    return stand_in(monkeypatch, kernels=True)


@pytest.fixture
def one_torch_thread():
    """PyTorch on one thread: for the tiny sizes of the tests a second one costs far more than it brings."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
