"""A handful of fused kernels for CuPy: what NumPy does in ten passes over an array, a GPU does in one.

Plain CuPy runs the layers as they are written, one kernel for each operation, and spends its time on reading and
writing arrays. Here the row-wise and entry-wise parts are written once more, in CUDA C: softmax, the norms,
cross-entropy, GELU, dropout and Adam. The plain function is the meaning, and what one reads; its decorator
names the kernel:

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
SOURCE = r"""
// One block of threads has one row, thread x its columns x, x + blockDim.x, x + 2 blockDim.x ..
#define COLUMNS(j, n) for (long long j = threadIdx.x; j < n; j += blockDim.x)
// One thread has one entry.
#define ENTRY(i, n) long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;

#define LOWEST log(A(0))  // -infinity

// Return to every thread of the block the sum, or the largest, of what each of them gives.
template <class V> __device__ V over_block(V value, bool largest)
{
    __shared__ V parts[32];
    for (int offset = 16; offset > 0; offset /= 2) {
        V other = __shfl_xor_sync(0xffffffffu, value, offset);
        value = largest ? fmax(value, other) : value + other;
    }
    if (blockDim.x == 32) return value;
    __syncthreads();  // the parts of the call before have been read
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (int i = 1; i < blockDim.x / 32; ++i) value = largest ? fmax(value, parts[i]) : value + parts[i];
    return value;
}

// y = exp(x - max) / sum, 0 where the mask is false. y may be x. Row (r0, r1, r2) of the mask starts at r0 m0 + ..
extern "C" __global__ void softmax(const T* x, T* y, long long n, const bool* mask, long long n1, long long n2,
                                   long long m0, long long m1, long long m2, long long m3)
{
    long long row = blockIdx.x;
    x += row * n, y += row * n;
    if (mask) mask += row / (n1 * n2) * m0 + row / n2 % n1 * m1 + row % n2 * m2;
    A top = LOWEST, total = 0;
    COLUMNS(j, n) if (!mask || mask[j * m3]) top = fmax(top, A(x[j]));
    top = over_block(top, true);
    if (mask && top == LOWEST) top = 0;  // a row masked throughout
    COLUMNS(j, n) if (!mask || mask[j * m3]) total += exp(A(x[j]) - top);
    total = over_block(total, false);
    if (mask && total == 0) total = 1;
    COLUMNS(j, n) y[j] = !mask || mask[j * m3] ? T(exp(A(x[j]) - top) / total) : T(A(0));
}

// dx = y * (dy - sum(dy * y)). dx may be dy.
extern "C" __global__ void softmax_backward(const T* dy, const T* y, T* dx, long long n)
{
    long long start = blockIdx.x * n;
    dy += start, y += start, dx += start;
    A sum = 0;
    COLUMNS(j, n) sum += A(dy[j]) * A(y[j]);
    sum = over_block(sum, false);
    COLUMNS(j, n) dx[j] = T(A(y[j]) * (A(dy[j]) - sum));
}

// n = (x - mean) / root, y = gamma * n + beta, root = sqrt(mean of squares + eps). Without beta no mean is taken off.
extern "C" __global__ void normalise(const T* x, const T* gamma, const T* beta, T* y, T* n, A* root, long long d,
                                     double eps)
{
    long long start = blockIdx.x * d;
    x += start, y += start, n += start;
    A mean = 0, squares = 0;
    if (beta) {
        COLUMNS(j, d) mean += A(x[j]);
        mean = over_block(mean, false) / d;
    }
    COLUMNS(j, d) squares += (A(x[j]) - mean) * (A(x[j]) - mean);
    A r = sqrt(over_block(squares, false) / d + A(eps));
    COLUMNS(j, d) {
        A v = (A(x[j]) - mean) / r;
        n[j] = T(v);
        y[j] = T(beta ? v * A(gamma[j]) + A(beta[j]) : v * A(gamma[j]));
    }
    if (threadIdx.x == 0) root[blockIdx.x] = r;
}

// dx = (g - mean(g) - n * mean(g * n)) / root, g = gamma * dy; the first mean only where forward took one off.
extern "C" __global__ void normalise_backward(const T* dy, const T* n, const A* root, const T* gamma, T* dx,
                                              long long d, long long centred)
{
    long long start = blockIdx.x * d;
    dy += start, n += start, dx += start;
    A mean = 0, along = 0;
    COLUMNS(j, d) {
        A g = A(dy[j]) * A(gamma[j]);
        mean += g;
        along += g * A(n[j]);
    }
    mean = centred ? over_block(mean, false) / d : A(0);
    along = over_block(along, false) / d;
    COLUMNS(j, d) dx[j] = T((A(dy[j]) * A(gamma[j]) - mean - A(n[j]) * along) / root[blockIdx.x]);
}

// top = max x, total = sum exp(x - top), score = sum q * (x - top), q being q_true, q_ignored or q_other.
extern "C" __global__ void cross_entropy(const T* x, const long long* targets, A* top, A* total, A* score, long long v,
                                         double q_true, double q_other, double q_ignored, long long ignored)
{
    long long row = blockIdx.x, target = targets[row];
    if (target < 0 || target >= v) target = 0;  // whoever reads the loss hears of it
    if (ignored < 0 || ignored >= v) ignored = 0, q_ignored = q_other;
    x += row * v;
    A largest = LOWEST, exps = 0, all = 0;
    COLUMNS(j, v) largest = fmax(largest, A(x[j]));
    largest = over_block(largest, true);
    COLUMNS(j, v) {
        exps += exp(A(x[j]) - largest);
        all += A(x[j]) - largest;
    }
    exps = over_block(exps, false);
    all = over_block(all, false);
    if (threadIdx.x > 0) return;
    top[row] = largest;
    total[row] = exps;
    score[row] = A(q_true - q_other) * (A(x[target]) - largest);
    if (q_other != 0) score[row] += A(q_other) * all;
    if (q_ignored != q_other) score[row] += A(q_ignored - q_other) * (A(x[ignored]) - largest);
}

// dx = (exp(x - top) / total - q) * scale
extern "C" __global__ void cross_entropy_backward(const T* x, const A* top, const A* total, const long long* targets,
                                                  const A* scale, T* dx, long long v, double q_true, double q_other,
                                                  double q_ignored, long long ignored)
{
    long long row = blockIdx.x, target = targets[row];
    x += row * v, dx += row * v;
    COLUMNS(j, v) {
        double q = j == target ? q_true : j == ignored ? q_ignored : q_other;
        dx[j] = T((exp(A(x[j]) - top[row]) / total[row] - A(q)) * scale[row]);
    }
}

#define TANH_SCALE A(0.7978845608028654)  // sqrt(2 / pi)
#define TANH_CUBE A(0.044715)
#define NORMAL_CDF(a) (A(0.5) * erfc((a) * A(-0.7071067811865476)))

// y = x Phi(x), or with by_tanh y = x (1 + t) / 2, t = tanh(TANH_SCALE (x + TANH_CUBE x^3))
extern "C" __global__ void gelu(const T* x, T* y, long long n, long long by_tanh)
{
    ENTRY(i, n)
    A a = A(x[i]), b = fmin(fmax(a, A(-10)), A(10));  // nothing changes beyond, but the cube could overflow
    A phi = by_tanh ? A(0.5) * (1 + tanh(TANH_SCALE * b * (1 + TANH_CUBE * b * b))) : NORMAL_CDF(a);
    y[i] = T(a * phi);
}

extern "C" __global__ void gelu_backward(const T* dy, const T* x, T* dx, long long n, long long by_tanh)
{
    ENTRY(i, n)
    A a = A(x[i]), slope;
    if (by_tanh) {
        a = fmin(fmax(a, A(-10)), A(10));
        A t = tanh(TANH_SCALE * a * (1 + TANH_CUBE * a * a));
        slope = A(0.5) * (1 + t + a * (1 - t * t) * TANH_SCALE * (1 + 3 * TANH_CUBE * a * a));
    } else {
        slope = NORMAL_CDF(a) + a * A(0.3989422804014327) * exp(A(-0.5) * a * a);
    }
    dx[i] = T(A(dy[i]) * slope);
}

// Four words of 64 random bits: block `counter` of Philox4x64-10, see Salmon et al. 2011, "Parallel random numbers: as
// easy as 1, 2, 3". Each block is computed from its number alone, so every thread has one of its own.
__device__ void philox(unsigned long long counter, unsigned long long key, unsigned long long* words)
{
    unsigned long long c[4] = {counter, 0, 0, 0}, k[2] = {key, 0};
    for (int round = 0; round < 10; ++round) {
        unsigned long long a = 0xD2E7470EE14C6C93ull, b = 0xCA5A826395121157ull;
        unsigned long long high0 = __umul64hi(a, c[0]), low0 = a * c[0], high1 = __umul64hi(b, c[2]), low1 = b * c[2];
        c[0] = high1 ^ c[1] ^ k[0], c[1] = low1, c[2] = high0 ^ c[3] ^ k[1], c[3] = low0;
        k[0] += 0x9E3779B97F4A7C15ull, k[1] += 0xBB67AE8584CAA73Bull;
    }
    for (int i = 0; i < 4; ++i) words[i] = c[i];
}

// mask = scale where 16 random bits are at least n_dropped, else 0; with x also y = x * mask. A block of 256 threads
// has 4096 entries: first each thread draws the bits of 16 that lie side by side, then it takes every 256th.
extern "C" __global__ void dropout(const T* x, T* mask, T* y, long long n, long long key, long long n_dropped,
                                   double scale)
{
    __shared__ unsigned long long words[1024];
    philox((long long)blockIdx.x * 256 + threadIdx.x + 1, key, words + 4 * threadIdx.x);
    __syncthreads();
    for (int j = threadIdx.x; j < 4096; j += 256) {
        long long i = (long long)blockIdx.x * 4096 + j;
        if (i >= n) return;
        long long bits = words[j / 4] >> j % 4 * 16 & 65535;
        T factor = T(bits >= n_dropped ? A(scale) : A(0));
        mask[i] = factor;
        if (x) y[i] = T(A(x[i]) * A(factor));
    }
}

// m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,  p = p - decay p - step_size m / (sqrt(v / correction) + eps)
extern "C" __global__ void adam(T* p, const T* g, T* m, T* v, long long n, double step_size, double b1, double b2,
                                double eps, double correction, double decay)
{
    ENTRY(i, n)
    A gradient = A(g[i]), mean = A(b1) * A(m[i]) + A(1 - b1) * gradient;
    A square = A(b2) * A(v[i]) + A(1 - b2) * gradient * gradient;
    m[i] = T(mean);
    v[i] = T(square);
    p[i] = T(A(p[i]) - A(decay) * A(p[i]) - A(step_size) * mean / (sqrt(square / A(correction)) + A(eps)));
}

// parts[block] = the sum of the squares of every gridDim.x-th stretch of blockDim.x entries
extern "C" __global__ void squares(const T* g, double* parts, long long n)
{
    double sum = 0;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x)
        sum += double(A(g[i])) * double(A(g[i]));
    sum = over_block(sum, false);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}
"""


@functools.cache
def _compiled(xp, dtype, name):
    """Return the kernel of that name for arrays of that type; CuPy compiles at the first launch, and keeps it."""
    return _module(xp, dtype).get_function(name)


@functools.cache
def _module(xp, dtype):
    return xp.RawModule(code=HEADERS[dtype] + SOURCE)


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
