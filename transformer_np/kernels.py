"""A handful of fused kernels for CuPy: what NumPy does in ten passes over an array, a GPU does in one.

Plain CuPy runs the layers as they are written, one kernel for each operation, and spends its time on reading and
writing arrays. Here the row-wise and entry-wise parts are written once more, in CUDA C, in kernels.cu: softmax, the
norms, cross-entropy, GELU, dropout and Adam. The plain function is the meaning, and what one reads; its decorator names
the kernel:

    @on_gpu(kernels.softmax_in_place)
    def softmax_in_place(scores, mask=None): ...

On NumPy arrays the plain function runs, on CuPy arrays the kernel; within `with plain():` it is the plain function
there too. Sums are taken in float32 for float16 and bfloat16, as in the plain ones, and rounding happens once, at the
end. The tests compare each kernel with its plain twin.
"""

import contextlib
import contextvars
import functools
import sys
from pathlib import Path

import numpy as np

from .backend import array_module, is_half, widen
from .checks import check_floats

_plain = contextvars.ContextVar("plain", default=False)


@contextlib.contextmanager
def plain():
    """Within `with plain():` no kernel of this file is used: to compare, or where one of them fails."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


def on_gpu(kernel):
    """Decorate a plain function or method: where an array among its arguments lives on a GPU, call `kernel` instead.

    Where that returns NotImplemented, as for arrays that lie in memory in another way, the plain one is called.
    """

    def decorate(function):
        @functools.wraps(function)
        def either(*args, **kwargs):
            if "cupy" in sys.modules and array_module(*args) is not np and not _plain.get():
                result = kernel(*args, **kwargs)
                if result is not NotImplemented:
                    return result
            return function(*args, **kwargs)

        return either

    return decorate


# T is the type of the arrays, A the one that sums are taken in. Integers are long long and other numbers double.
HEADERS = {
    "float32": "typedef float T; typedef float A;",
    "float64": "typedef double T; typedef double A;",
    "float16": "#include <cuda_fp16.h>\ntypedef __half T; typedef float A;",
    "bfloat16": "#include <cuda_bf16.h>\ntypedef __nv_bfloat16 T; typedef float A;",
}


def source(dtype):
    """Return the CUDA source of all kernels for arrays of that type, one of `HEADERS`."""
    return HEADERS[dtype] + Path(__file__).with_name("kernels.cu").read_text(encoding="utf-8")


@functools.cache
def _compiled(xp, dtype, name):
    """Return the kernel of that name for arrays of that type; CuPy compiles at the first launch, and keeps it."""
    return _module(xp, dtype).get_function(name)


@functools.cache
def _module(xp, dtype):
    return xp.RawModule(code=source(dtype))


def _launch(name, like, blocks, threads, *arguments):
    """Start a kernel for arrays of the type of `like`. None becomes a null pointer."""
    if blocks:
        kernel = _compiled(array_module(like), like.dtype.name, name)
        kernel((blocks,), (threads,), tuple(map(_argument, arguments)))


def _argument(value):
    if value is None:
        return np.uint64(0)
    if isinstance(value, (bool, int, np.integer)):
        return np.int64(value)
    return np.float64(value) if isinstance(value, (float, np.floating)) else value


def _by_rows(name, like, n, *arguments):
    """Start a kernel that has one block of threads for each row of n."""
    threads = 32
    while threads < 256 and 4 * threads < n:
        threads *= 2
    _launch(name, like, like.size // n, threads, *arguments)


def _by_entries(name, like, *arguments):
    """Start a kernel that has one thread for each entry."""
    _launch(name, like, -(-like.size // 256), 256, *arguments)


def _contiguous(array):
    # What is contiguous stays as it is: `ascontiguousarray` would give an array without axes one.
    return array if array.flags.c_contiguous else array_module(array).ascontiguousarray(array)


def softmax_in_place(scores, mask=None):
    """The kernel of layers.softmax.softmax_in_place."""
    if not scores.flags.c_contiguous or (mask is not None and scores.ndim > 4):
        return NotImplemented
    n, sizes, strides = scores.shape[-1], (1, 1), (0, 0, 0, 0)
    if mask is not None:
        mask = array_module(scores).broadcast_to(mask, scores.shape)
        mask = mask[(None,) * (4 - mask.ndim)]
        sizes, strides = mask.shape[1:3], mask.strides  # of a boolean array, so in entries too
    _by_rows("softmax", scores, n, scores, scores, n, mask, *sizes, *strides)
    return scores


def softmax_backward(dy, y, out=None):
    """The kernel of layers.softmax.softmax_backward."""
    if out is not None and not out.flags.c_contiguous:
        return NotImplemented
    dy, y = _contiguous(dy), _contiguous(y)
    out = array_module(y).empty_like(y) if out is None else out
    _by_rows("softmax_backward", y, y.shape[-1], dy, y, out, y.shape[-1])
    return out


def layer_norm(layer, x):
    """The kernel of LayerNorm.forward."""
    return _norm(layer, x, layer.beta.data)


def rms_norm(layer, x):
    """The kernel of RMSNorm.forward."""
    return _norm(layer, x, None)


def _norm(layer, x, beta):
    check_floats(layer, "x", x, last=layer.d_model, dtype=layer.dtype)
    xp, x = array_module(x), _contiguous(x)
    y, n = xp.empty_like(x), xp.empty((x.size // layer.d_model, layer.d_model), x.dtype)  # (..., D), (N, D)
    root = xp.empty((len(n), 1), widen(x[:0]).dtype)  # (N, 1)
    gamma = layer.gamma.data
    _by_rows("normalise", x, layer.d_model, x, gamma, beta, y, n, root, layer.d_model, layer.eps)
    layer.save_for_backward(n, root, output=y)
    return y


def layer_norm_backward(layer, dy):
    """The kernel of LayerNorm.backward."""
    dx, rows, wide = _norm_backward(layer, dy, True)
    layer.beta.accumulate(_column_sums(rows.astype(wide, copy=False)))
    return dx


def rms_norm_backward(layer, dy):
    """The kernel of RMSNorm.backward."""
    return _norm_backward(layer, dy, False)[0]


def _norm_backward(layer, dy, centred):
    n, root = layer.saved(dy)
    xp, dy = array_module(dy), _contiguous(dy)
    rows, dx = dy.reshape(n.shape), xp.empty_like(dy)
    _by_rows("normalise_backward", dy, layer.d_model, dy, n, root, layer.gamma.data, dx, layer.d_model, centred)
    layer.gamma.accumulate(_column_sums(xp.multiply(rows, n, dtype=root.dtype)))
    return dx, rows, root.dtype


def _column_sums(x):
    return array_module(x).ones(len(x), x.dtype) @ x


def scores_of(rows, targets, q, ignored):
    """The kernel of losses.scores_of; what it keeps for `gradient_of` is the logits and the largest of each row."""
    xp, rows, targets = array_module(rows), _contiguous(rows), _contiguous(targets.astype(np.int64, copy=False))
    top, total, score = (xp.empty(len(rows), widen(rows[:0]).dtype) for _ in range(3))
    ignored = -1 if ignored is None else ignored
    _by_rows("cross_entropy", rows, rows.shape[1], rows, targets, top, total, score, rows.shape[1], *q, ignored)
    return (rows, top), total, score


def gradient_of(kept, total, targets, scale, q, ignored):
    """The kernel of losses.gradient_of."""
    (rows, top), xp = kept, array_module(total)
    targets, v, dlogits = _contiguous(targets.astype(np.int64, copy=False)), rows.shape[1], xp.empty_like(rows)
    scale, ignored = _contiguous(scale.astype(total.dtype, copy=False)), -1 if ignored is None else ignored
    _by_rows("cross_entropy_backward", rows, v, rows, top, total, targets, scale, dlogits, v, *q, ignored)
    return dlogits


def gelu(layer, x):
    """The kernel of GELU.forward."""
    check_floats(layer, "x", x, min_ndim=0)
    x = _contiguous(x)
    y = array_module(x).empty_like(x)
    _by_entries("gelu", x, x, y, x.size, layer.approximate == "tanh")
    layer.save_for_backward(x, output=y)
    return y


def gelu_backward(layer, dy):
    """The kernel of GELU.backward."""
    (x,) = layer.saved(dy)
    dy = _contiguous(dy)
    dx = array_module(dy).empty_like(dy)
    _by_entries("gelu_backward", dy, dy, x, dx, dy.size, layer.approximate == "tanh")
    return dx


def sums_by_bucket(dbias, buckets, n_buckets):
    """In place of layers.relative_position_bias.sums_by_bucket: CuPy's bincount would wait for the device."""
    xp, rows = array_module(dbias), widen(dbias).reshape(len(dbias), -1).T  # (T S, H)
    sums = xp.zeros((n_buckets, len(dbias)), rows.dtype)
    xp.add.at(sums, buckets.ravel(), rows)
    return sums


def dropout_mask(layer, like):
    """The kernel of Dropout.draw_mask."""
    mask = array_module(like).empty(like.shape, like.dtype)
    _dropout(layer, None, mask, None)
    return mask


def dropout(layer, x):
    """The kernel of Dropout.forward."""
    if not layer.training or layer.p == 0:
        return NotImplemented
    check_floats(layer, "x", x, min_ndim=0)
    x = _contiguous(x)
    mask, y = (array_module(x).empty_like(x) for _ in range(2))
    layer.start()
    _dropout(layer, x, mask, y)
    layer.save_for_backward(mask, output=y)
    return y


def _dropout(layer, x, mask, y):
    numbers = mask.size, layer.key(), layer.n_dropped, layer.scale
    _launch("dropout", mask, -(-mask.size // 4096), 256, x, mask, y, *numbers)


def adam_step(p, g, m, v, step_size, betas, eps, correction, decay):
    """The kernel of optim.adam.adam_step_plain."""
    if is_half(p) or not all(a.flags.c_contiguous for a in (p, g, m, v)):
        return NotImplemented
    numbers = (step_size, *betas, eps, correction, decay)
    _by_entries("adam", p, p, g, m, v, p.size, *map(float, numbers))
    return p


def sums_of_squares(*grads):
    """The kernel of optim.clipping.sums_of_squares."""
    blocks = 64
    parts = array_module(*grads).empty((len(grads), blocks))
    for row, grad in zip(parts, map(_contiguous, grads), strict=True):
        _launch("squares", grad, blocks, 256, grad, row, grad.size)
    return parts.sum(1)
