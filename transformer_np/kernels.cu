// The kernels of kernels.py, in CUDA C. T is the type of the arrays, A the one that sums are taken in; kernels.py says
// before this file which they are. Integers are long long, and other numbers double.

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
