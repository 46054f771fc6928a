"""A stand-in for CuPy, for machines without a GPU: arrays that NumPy may not touch, and kernels compiled for the CPU.

It shows that a computation stays on the device, that nothing is read from it in passing, and that the CUDA sources
compute what they should. It says nothing of time, nor of what CuPy itself does.
"""

import ctypes
import functools
import re
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import numpy as np
import pytest
from cupy_manners import API, check_call, check_manners, result_of, signature, waits

from transformer_np.backend import float_dtype
from transformer_np.layers.gelu import normal_cdf


class DeviceArray:
    """A stand-in for a GPU array: it computes with NumPy inside, but no `np` function may touch it from outside."""

    __array_ufunc__ = None  # a NumPy array on the left of an operator gives up, instead of converting
    n_read = 0  # how often a number or an array was brought to the host

    def __init__(self, host):
        self.host = host

    def __array__(self, *args, **kwargs):
        raise TypeError("implicit conversion to NumPy is not allowed: use .get()")

    def __array_function__(self, function, types, args, kwargs):
        raise TypeError(f"np.{function.__name__} called on a device array")

    @property
    def data(self):
        """The memory on the device: its address."""
        return types.SimpleNamespace(ptr=self.host.ctypes.data)

    def _read(self):
        DeviceArray.n_read += 1
        return self.host

    def get(self):
        return self._read().copy()

    def item(self):
        return self._read().item()

    def tolist(self):
        return self._read().tolist()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        signature("array", name)
        return on_device(getattr(self.host, name), "array", name, self)

    def __setitem__(self, key, value):
        key = to_host(key)
        DeviceArray.n_read += waits(key)
        self.host[key] = to_host(value)

    def __len__(self):
        return len(self.host)

    def __bool__(self):
        return bool(self._read())

    def __float__(self):
        return float(self._read())

    def __int__(self):
        return int(self._read())

    __index__ = __int__


def to_host(value):
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError("Unsupported type numpy.ndarray")  # as CuPy says
    if isinstance(value, DeviceArray):
        return value.host
    if isinstance(value, (tuple, list)):
        return type(value)(to_host(v) for v in value)
    return value


def on_device(result, kind=None, name=None, *owner):
    """Wrap arrays, and functions that return arrays; results of reductions are arrays too, as CuPy has it.

    A function of CuPy's (or a method of `owner`) refuses what CuPy's would.
    """
    if isinstance(result, (np.ndarray, np.generic)):
        return DeviceArray(np.asarray(result))
    if not callable(result) or isinstance(result, type):
        return result

    def function(*args, **kwargs):
        everything = to_host((*owner, *args))
        if kind is not None:
            check_call(kind, name, everything, kwargs)
            check_manners(kind, name, everything)
        found = result(*to_host(args), **{key: to_host(value) for key, value in kwargs.items()})
        return on_device(result_of(name, everything, found))

    def at(*args):
        check_manners(kind, f"{name}.at", to_host(args))
        result.at(*to_host(args))

    if isinstance(result, np.ufunc):
        function.at = at
    return function


def operator(name):
    def apply(self, *others):
        others = to_host(others)
        check_manners("operators", name.strip("_"), (self.host, *others))
        DeviceArray.n_read += name == "__getitem__" and waits(*others)
        result = getattr(self.host, name)(*others)
        if result is self.host:  # in place
            return self
        return on_device(result_of(name.strip("_"), (self.host, *others), result))

    return apply


OPERATORS = """add radd iadd sub rsub isub mul rmul imul truediv rtruediv itruediv matmul rmatmul pow neg abs and rand
    iand or ior invert eq ne lt le gt ge getitem floordiv mod"""
for _name in OPERATORS.split():
    setattr(DeviceArray, f"__{_name}__", operator(f"__{_name}__"))


class DeviceModule(types.ModuleType):
    """A stand-in for `cupy`: every function of NumPy, on DeviceArrays."""

    ndarray = DeviceArray
    inf = np.inf
    float32 = np.float32

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("ElementwiseKernel", "RawKernel", "ReductionKernel", "fuse"):
            raise AttributeError(f"this stand-in has no {name}")
        found = getattr(np, name)
        if callable(found) and not isinstance(found, type) and name not in API["ufuncs"]:
            signature("functions", name)
        return on_device(found, "functions", name)

    @staticmethod
    def asarray(array, dtype=None):
        """The one way onto the device: it copies, and takes NumPy arrays."""
        return DeviceArray(np.array(array.host if isinstance(array, DeviceArray) else array, dtype))

    array = asarray


# What CUDA C has and C++ has not. The threads of a block are coroutines: each runs until it waits for the others.
CUDA = r"""
#include <cmath>
#include <csetjmp>
#include <cstring>
#include <ucontext.h>
#include <utility>
using namespace std;
#define __global__
#define __device__ static
#define __shared__ static
struct Three { unsigned x; };
static Three threadIdx, blockIdx, blockDim, gridDim;
static jmp_buf scheduler, places[256];
static char stacks[256][1 << 16];
static int waiting_at[256];  // the line, or -1 where the thread has ended
static double slots[256];
static void wait_at(int line) {
    unsigned me = threadIdx.x;
    waiting_at[me] = line;
    if (!_setjmp(places[me])) _longjmp(scheduler, 1);
}
#define __syncthreads() wait_at(__LINE__)
static unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned __int128)a * b >> 64;
}
template <class V> static V exchange(V value, int offset, int line) {
    unsigned me = threadIdx.x;
    slots[me] = value;
    wait_at(line);
    V other = slots[me ^ offset];
    wait_at(line);
    return other;
}
#define __shfl_xor_sync(mask, value, offset) exchange(value, offset, __LINE__)
"""
LAUNCH = r"""
static void (*job)(void**);
static void** arguments;
static void run_for_ever() {
    for (;;) {
        job(arguments);
        wait_at(-1);
    }
}
static void resume(unsigned i) {  // until it waits
    static bool begun[256];
    threadIdx.x = i;
    if (_setjmp(scheduler)) return;
    if (begun[i]) _longjmp(places[i], 1);
    begun[i] = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stacks[i], context.uc_stack.ss_size = sizeof stacks[i], context.uc_link = 0;
    makecontext(&context, run_for_ever, 0);
    setcontext(&context);
}
template <class... P, size_t... I> static void call(void (*kernel)(P...), void** a, integer_sequence<size_t, I...>) {
    kernel(*(P*)a[I]...);
}
template <auto kernel> struct Job;
template <class... P, void (*kernel)(P...)> struct Job<kernel> {
    static void run(void** a) { call(kernel, a, make_index_sequence<sizeof...(P)>()); }
};
// Return 0, or 1 where the threads of a block wait for each other at different places, which would hang or be wrong.
extern "C" int launch(const char* name, unsigned grid, unsigned block, void** a, int backwards) {
    CHOOSE
    arguments = a, gridDim.x = grid, blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) {
        for (bool running = true; running;) {
            for (unsigned i = 0; i < block; ++i) resume(backwards ? block - 1 - i : i);
            for (unsigned i = 1; i < block; ++i) if (waiting_at[i] != waiting_at[0]) return 1;
            running = waiting_at[0] != -1;
        }
    }
    return 0;
}
"""
HALF = """
struct __half {
    _Float16 bits;
    __half() {}
    __half(float value) : bits(value) {}
    operator float() const { return bits; }
};
"""
BFLOAT16 = """
struct __nv_bfloat16 {
    unsigned short bits;
    __nv_bfloat16() {}
    __nv_bfloat16(float value) {
        unsigned u;
        memcpy(&u, &value, 4);
        bits = value != value ? 0x7fc0 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
    }
    operator float() const {
        unsigned u = (unsigned)bits << 16;
        float value;
        memcpy(&value, &u, 4);
        return value;
    }
};
"""


@functools.cache
def compiled(code):
    """Compile CUDA C for the CPU; return the library."""
    folder = Path(tempfile.mkdtemp(prefix="kernels"))
    names = re.findall(r"__global__ void (\w+)\(", code)
    choose = "".join(f'if (!strcmp(name, "{name}")) job = Job<{name}>::run;\n' for name in names)
    (folder / "cuda_fp16.h").write_text(HALF)
    (folder / "cuda_bf16.h").write_text(BFLOAT16)
    (folder / "kernels.cpp").write_text(CUDA + code + LAUNCH.replace("CHOOSE", choose))
    command = ["g++", "-std=c++17", "-O1", "-w", "-ffp-contract=off", "-shared", "-fPIC", f"-I{folder}"]
    subprocess.run([*command, str(folder / "kernels.cpp"), "-o", str(folder / "kernels.so")], check=True)
    return ctypes.CDLL(str(folder / "kernels.so"))


class RawModule:
    """A stand-in for `cupy.RawModule`. `backwards` lets the threads of a block run in the opposite order."""

    backwards = False

    def __init__(self, code):
        self.library = compiled(code)

    def get_function(self, name):
        def kernel(grid, block, arguments):
            keep = [self._value(argument) for argument in arguments]
            pointers = (ctypes.c_void_p * len(keep))(*(ctypes.addressof(value) for value in keep))
            if self.library.launch(name.encode(), *grid, *block, pointers, int(RawModule.backwards)):
                raise RuntimeError(f"the threads of {name} wait for each other at different places")

        return kernel

    @staticmethod
    def _value(argument):
        if isinstance(argument, DeviceArray):
            return ctypes.c_void_p(argument.host.ctypes.data)
        kinds = {np.int64: ctypes.c_int64, np.float64: ctypes.c_double, np.uint64: ctypes.c_uint64}
        return kinds[type(argument)](argument.item())


class Cublas:
    """A stand-in for CuPy's bindings of cuBLAS: the one product of stacks that we use, and what it would refuse."""

    CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_GEMM_DEFAULT = 68, 70, 77, -1
    TYPES = {0: "float32", 1: "float64", 2: "float16", 14: "bfloat16"}  # as cudaDataType numbers them

    @classmethod
    def gemmStridedBatchedEx(
        cls, handle, a_turned, b_turned, n, m, k, one, a, a_kind, a_width, a_step, b, b_kind, b_width, b_step,
        zero, c, c_kind, c_width, c_step, count, sums, algorithm,
    ):  # fmt: skip
        """c = a b for `count` matrices, stored column by column unless turned: a (n, k), b (k, m), c (n, m)."""
        assert a_kind == b_kind == c_kind
        assert all(type(x) is int for x in (a_turned, n, m, k, a, a_width, a_step, b_step, c, count, sums))
        assert sums in ((70,) if c_kind == 1 else (68, 77) if c_kind == 0 else (68,))
        assert a_width >= (k if a_turned else n)
        assert b_width >= (m if b_turned else k)
        assert c_width >= n
        dtype = float_dtype(cls.TYPES[c_kind])
        scalar = np.float64 if c_kind == 1 else np.float32
        assert [cls.view(x, np.dtype(scalar), (1,), (1,))[0] for x in (one, zero)] == [1, 0]
        a = cls.view(a, dtype, (count, n, k), (a_step, a_width, 1) if a_turned else (a_step, 1, a_width))
        b = cls.view(b, dtype, (count, k, m), (b_step, b_width, 1) if b_turned else (b_step, 1, b_width))
        c = cls.view(c, dtype, (count, n, m), (c_step, 1, c_width))
        c[...] = (a.astype(scalar) @ b.astype(scalar)).astype(dtype)

    @staticmethod
    def view(address, dtype, shape, steps):
        """The array of that shape at an address in memory; entry i is i * steps away."""
        size = 1 + sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
        memory = np.frombuffer((ctypes.c_char * (size * dtype.itemsize)).from_address(address), dtype)
        strides = [step * dtype.itemsize for step in steps]
        return np.lib.stride_tricks.as_strided(memory, shape, strides)


def stand_in(monkeypatch, kernels):
    """Put the stand-in where `import cupy` finds it; with `kernels` also what compiles them. Return it."""
    cupy = DeviceModule("cupy")
    cupy.cuda = types.SimpleNamespace(is_available=lambda: True, cublas=Cublas)
    cupy.cuda.device = types.SimpleNamespace(get_cublas_handle=lambda: 1)
    cupy.cuda.runtime = types.SimpleNamespace(CUDA_R_32F=0, CUDA_R_64F=1, CUDA_R_16F=2, CUDA_R_16BF=14)
    linalg = types.SimpleNamespace(get_compute_type=lambda dtype: 1, COMPUTE_TYPE_TF32=7)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cupy.cuda)
    monkeypatch.setitem(sys.modules, "cupy._core", types.SimpleNamespace(_routines_linalg=linalg))
    if kernels:
        cupy.RawModule = RawModule
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    for name in ("cupyx", "cupyx.scipy", "cupyx.scipy.special"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["cupyx.scipy.special"].ndtr = on_device(normal_cdf)
    return cupy


@pytest.fixture
def fake_gpu(monkeypatch):
    """The stand-in, with the plain functions in place of the kernels."""
    from transformer_np.kernels import plain

    with plain():
        yield stand_in(monkeypatch, kernels=False)
