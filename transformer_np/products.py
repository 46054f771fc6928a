"""Products of stacks of matrices, one for each sentence and head: `@` on the CPU, one call of cuBLAS on a GPU.

CuPy's own `@` copies every factor that is transposed, takes float16 by way of float32, never uses TF32 for stacks, and
refuses stacks of bfloat16. cuBLAS does all of it as it is; it only wants the matrices of a stack at equal distances.
"""

import itertools

import numpy as np

from .backend import array_module, widen
from .kernels import on_gpu


def matmul_on_gpu(a, b):
    """The same as `matmul`, by cuBLAS; NotImplemented where the stacks or the types of the factors differ."""
    if a.ndim < 3 or a.shape[:-2] != b.shape[:-2] or a.dtype != b.dtype or 0 in (a.size, b.size):
        return NotImplemented
    from cupy.cuda import cublas, device, runtime

    xp, n, k, m = array_module(a), *a.shape[-2:], b.shape[-1]
    (a, a_turned, a_width, a_step), (b, b_turned, b_width, b_step) = map(as_stack, (a, b))
    c = xp.empty((*a.shape[:-1], m), a.dtype)  # (..., n, m)
    kind = {"float16": runtime.CUDA_R_16F, "bfloat16": runtime.CUDA_R_16BF}.get(a.dtype.name)
    sums, one, zero = cublas.CUBLAS_COMPUTE_32F, np.ones(1, np.float32), np.zeros(1, np.float32)
    if a.dtype == np.float32:
        kind = runtime.CUDA_R_32F
        sums = cublas.CUBLAS_COMPUTE_32F_FAST_TF32 if tf32_is_allowed() else sums
    elif a.dtype == np.float64:
        kind, sums, one, zero = runtime.CUDA_R_64F, cublas.CUBLAS_COMPUTE_64F, np.ones(1), np.zeros(1)
    # cuBLAS reads matrices column by column, so it sees their transposes: cᵀ = bᵀ aᵀ.
    cublas.gemmStridedBatchedEx(
        device.get_cublas_handle(), int(b_turned), int(a_turned), m, n, k,
        one.ctypes.data, b.data.ptr, kind, b_width, b_step, a.data.ptr, kind, a_width, a_step,
        zero.ctypes.data, c.data.ptr, kind, m, n * m, c.size // (n * m), sums, cublas.CUBLAS_GEMM_DEFAULT,
    )  # fmt: skip
    return c


def tf32_is_allowed():
    """Whether `backend.allow_tf32` is in force."""
    from cupy._core import _routines_linalg as linalg

    return linalg.get_compute_type(np.float32) == linalg.COMPUTE_TYPE_TF32


def as_stack(x):
    """Return x (..., n, m), copied only where it must be, and how its matrices lie in memory, all in entries:

    whether column by column, how far one row (or column) is from the next, and one matrix from the next.
    """
    *outer, row, column = (stride // x.itemsize for stride in x.strides)
    *sizes, n, m = x.shape
    row, column = m if n == 1 else row, 1 if m == 1 else column
    steps = [(step, size) for step, size in zip(outer, sizes, strict=True) if size > 1]
    even = all(step == inner * size for (step, _), (inner, size) in itertools.pairwise(steps))
    if not even or not ((column == 1 and row >= m) or (row == 1 and column >= n)):
        return as_stack(array_module(x).ascontiguousarray(x))
    turned = column > 1 or row < m
    return x, turned, column if turned else row, steps[-1][0] if steps else 0


@on_gpu(matmul_on_gpu)
def matmul(a, b):
    """Return a @ b, a product for each pair of matrices: (..., n, k), (..., k, m) -> (..., n, m), in the type of a."""
    if a.dtype.name == "bfloat16":  # of which NumPy's own product is float32, and CuPy has none
        return (widen(a) @ widen(b)).astype(a.dtype)
    return a @ b
