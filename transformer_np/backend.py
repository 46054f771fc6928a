"""NumPy or CuPy: whichever the arrays are. No switch says "GPU"; the one there is, `allow_tf32`, is CuPy's own.

A layer asks `array_module(x)` for the library that made `x` and computes with that. So the same lines run on the
CPU and on a GPU, and a model moves from one to the other by moving its arrays (`model.to("cupy")`).
"""

import contextlib
import contextvars
import sys

import numpy as np

FLOAT_DTYPES = ("float16", "bfloat16", "float32", "float64")


def array_module(*arrays):
    """Return `cupy` if any of the arrays lives on a GPU, else `numpy`. CuPy is never imported for NumPy arrays."""
    cupy = sys.modules.get("cupy")
    if cupy is not None and any(isinstance(a, cupy.ndarray) for a in arrays):
        return cupy
    return np


def gpu_available():
    """Say whether CuPy is installed *and* sees a GPU; an installed CuPy alone is not enough."""
    try:
        import cupy
    except ImportError:
        return False
    return bool(cupy.cuda.is_available())


def module_named(name):
    """Return the array module for a device name: "numpy" or "cpu", "cupy" or "gpu".

    Raises ValueError for any other name, and RuntimeError where a GPU is asked for and there is none.
    """
    if name in ("numpy", "cpu"):
        return np
    if name in ("cupy", "gpu"):
        if not gpu_available():
            raise RuntimeError(
                f'"{name}" asked for, but there is no usable GPU here: install the extra cuda12 or cuda13 on a machine '
                "with an NVIDIA GPU, or stay on the CPU"
            )
        import cupy

        return cupy
    raise ValueError(f'device: got {name!r}, expected "numpy" (or "cpu") or "cupy" (or "gpu")')


def to_numpy(array):
    """Copy a GPU array to the host; return a NumPy array as it is. The only way from CuPy to NumPy in this package."""
    return array.get() if array_module(array) is not np else np.asarray(array)


def is_float(array):
    """Say whether the array holds real floating-point numbers (bfloat16 included)."""
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def float_dtype(dtype, who="float_dtype"):
    """Return the NumPy dtype of a floating-point type given by name or otherwise; "bfloat16" is that of ml_dtypes.

    Raises ValueError in the name of `who` for anything else, and where ml_dtypes would be needed and is missing.
    """
    if isinstance(dtype, str) and dtype == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise ValueError(f"{who}: bfloat16 needs the package ml_dtypes (pip install ml_dtypes)") from None
        return np.dtype(ml_dtypes.bfloat16)
    found = np.dtype(dtype)
    if not is_float(np.empty(0, found)):
        raise ValueError(f"{who}: dtype must be a floating-point type, got {dtype!r}")
    return found


def is_half(array):
    """Say whether a floating-point array is of float16 or bfloat16."""
    return array.dtype.itemsize == 2


def widen(array):
    """Return float16 and bfloat16 as float32, and any other array as it is.

    Sums and squares are taken of the wide one: float16 ends at 65504, and a sum in 11 bits (bfloat16: 8) soon stands
    still.
    """
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array


def constant(value, like):
    """Return the number for sums and products with the array `like`: as it is, but of like's type for bfloat16.

    Next to a Python float, NumPy and CuPy keep the type of every array but bfloat16, of which they make float32.
    """
    return like.dtype.type(value) if like.dtype.kind == "V" else value


def where(mask, x, y):
    """Return x where the mask is True, else y, in the type of x: of bfloat16 CuPy makes float32 here."""
    return array_module(x).where(mask, x, y).astype(x.dtype, copy=False)


def row_dots(a, b):
    """Return the sum of a * b over the last axis, keeping that axis with size 1."""
    xp = array_module(a)
    if xp is np and hasattr(np, "vecdot"):  # NumPy 2: one product of two vectors for each row
        return np.vecdot(a, b)[..., None]
    if xp is np:
        return xp.einsum("...i,...i->...", a, b)[..., None]  # without the temporary a * b
    return (a * b).sum(-1, keepdims=True)  # cupy.einsum is several times slower than this


def allow_tf32(allowed=True):
    """Let CuPy round the factors of float32 products to TF32 (10 bits, as float16 has; float32's range), or not.

    Products of float32 arrays are then several times faster, and right to three digits. Sums stay in float32, and so
    does everything that is no matrix product. For the whole process, as CuPy has it; the environment variable
    CUPY_TF32 does nothing here. Raises RuntimeError where there is no GPU.
    """
    module_named("cupy")
    from cupy._core import _routines_linalg as linalg

    linalg.set_compute_type(np.float32, linalg.COMPUTE_TYPE_TF32 if allowed else linalg.COMPUTE_TYPE_DEFAULT)


_unread = contextvars.ContextVar("unread", default=None)


def read(then, *scalars):
    """Call then(*numbers) with the Python numbers of arrays without axes; within `reading_at_the_end`, at its end.

    To ask a GPU for a number is to wait until it has done everything before.
    """
    unread = _unread.get()
    if unread is None:
        return then(*(scalar.item() for scalar in scalars))
    unread.append((then, scalars))
    return None


def is_reading_late():
    """Say whether the code runs within `reading_at_the_end`: then numbers on the device stay there."""
    return _unread.get() is not None


@contextlib.contextmanager
def reading_at_the_end():
    """Within it, everything that is to be `read` is noted down, and read in one go at its end."""
    unread = []
    token = _unread.set(unread)
    try:
        yield
    finally:
        _unread.reset(token)
    if unread:
        scalars = [scalar for _, several in unread for scalar in several]
        xp = array_module(*scalars)
        # float64 holds ids and float32 numbers exactly.
        numbers = iter(to_numpy(xp.stack([scalar.astype(np.float64) for scalar in scalars])).tolist())
        for then, several in unread:
            then(*(next(numbers) for _ in several))
