"""What CuPy refuses and NumPy does not, for the stand-in: arguments that its functions lack, and the manners below.

The list of functions and arguments is CuPy's own, written by fixtures/make_cupy_api.py. The manners were seen in CuPy
14.2 itself: its arrays on the host's memory, its kernels compiled for the CPU.
"""

import functools
import inspect
import json
from pathlib import Path

import numpy as np

API = json.loads((Path(__file__).parent / "fixtures" / "cupy_api.json").read_text(encoding="utf-8"))
UFUNC_OPTIONS = {"out", "dtype", "casting"}  # no where=
SORTS = ("sort", "argsort", "partition", "argpartition")


@functools.cache
def signature(kind, name):
    """The arguments of a function of CuPy, or of a method of its arrays; None where CuPy does not tell."""
    if name not in API[kind]:
        raise AttributeError(f"CuPy {API['cupy']} has no such thing among its {kind}: {name}")
    arguments, names = API[kind][name], {}
    if arguments is None:
        return None
    exec(f"def function({arguments}): pass", names)
    return inspect.signature(names["function"])


def check_call(kind, name, args, kwargs):
    """Raise TypeError, as CuPy would, where a call has arguments that CuPy's function lacks."""
    if kind == "functions" and name in API["ufuncs"]:
        if not UFUNC_OPTIONS.issuperset(kwargs):
            raise TypeError(f"Wrong arguments {kwargs}")
        return
    expected = signature(kind, name)
    if expected is not None:
        expected.bind(*args, **kwargs)


def is_bfloat16(x):
    return getattr(getattr(x, "dtype", None), "name", "") == "bfloat16"


def check_manners(kind, name, args):
    """Raise what CuPy raises for these arrays (as NumPy's, the method's own first)."""
    if name in SORTS and is_bfloat16(args[0]):
        raise NotImplementedError("Sorting arrays with dtype 'bfloat16' is not supported")
    if (kind, name) == ("array", "sort") and not args[0].flags.c_contiguous:
        raise NotImplementedError("Sorting non-contiguous array is not supported.")
    if name == "matmul" and all(map(is_bfloat16, args)) and max(x.ndim for x in args) > 2:
        raise TypeError("data type 'E' not understood")
    if name == "add.at" and is_bfloat16(args[0]):
        raise TypeError("cupy.add.at only supports int32, int64, float16, float32, float64, uint32, uint64")


def waits(index):
    """Whether CuPy waits for the device to read or set what such an index picks: how many Trues a mask has."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, np.ndarray) and part.dtype == bool for part in parts)


def result_of(name, args, result):
    """CuPy makes float32 of bfloat16 in `where`, and keeps it in a product, where NumPy makes float32."""
    if name == "where" and is_bfloat16(result):
        return result.astype(np.float32)
    if name == "matmul" and all(map(is_bfloat16, args)):
        return result.astype(args[0].dtype)
    return result
