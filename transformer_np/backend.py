"""NumPy or CuPy: whichever the arrays are. Nothing here is a global switch.

A layer asks `array_module(x)` for the library that made `x` and computes with that. So the same lines run on the
CPU and on a GPU, and a model moves from one to the other by moving its arrays (`model.to("cupy")`).
"""

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


def row_dots(a, b):
    """Return the sum of a * b over the last axis, keeping that axis with size 1."""
    xp = array_module(a)
    if xp is np:
        return xp.einsum("...i,...i->...", a, b)[..., None]  # without the temporary a * b
    return (a * b).sum(-1, keepdims=True)  # cupy.einsum is several times slower than this
