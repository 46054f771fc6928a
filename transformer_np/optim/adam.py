"""Adam: each number gets a step of its own size, from running means of its gradient and squared gradient."""

import math

from .. import kernels
from ..backend import array_module, is_half, widen
from ..checks import check_real
from ..kernels import on_gpu
from .optimizer import Optimizer, entrywise


@on_gpu(kernels.adam_step)
def adam_step_plain(p, g, m, v, step_size, betas, eps, correction, decay):
    """One update, as the paper writes it. Changes p, m and v in place.

        m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g²
        p = p - decay p - step_size m / (sqrt(v / correction) + eps)

    where step_size = lr / (1 - b1^t) and correction = 1 - b2^t undo the bias of means that started at zero.
    """
    b1, b2 = betas
    m[...] = b1 * m + (1 - b1) * g
    v[...] = b2 * v + (1 - b2) * g * g
    p[...] = p - decay * p - step_size * m / (array_module(p).sqrt(v / correction) + eps)


def adam_step(p, g, m, v, step_size, betas, eps, correction, decay, piece=1 << 17):
    """The same as `adam_step_plain`, piece by piece, so that the dozen passes over a piece stay in the cache.

    The division by `correction` is taken out of the root, which saves a pass:
    step_size m / (sqrt(v / c) + eps) = step_size sqrt(c) m / (sqrt(v) + eps sqrt(c)).
    """
    b1, b2 = betas
    step_size, eps = step_size * math.sqrt(correction), eps * math.sqrt(correction)
    xp = array_module(p)
    p, g, m, v = p.reshape(-1), g.reshape(-1), m.reshape(-1), v.reshape(-1)  # views: all four are contiguous
    scratch = xp.empty(min(piece, p.size), p.dtype)
    for i in range(0, p.size, piece):
        pi, gi, mi, vi = p[i : i + piece], g[i : i + piece], m[i : i + piece], v[i : i + piece]
        s = scratch[: pi.size]
        mi *= b1
        xp.multiply(gi, 1 - b1, out=s)
        mi += s
        xp.multiply(gi, gi, out=s)
        s *= 1 - b2
        vi *= b2
        vi += s
        xp.sqrt(vi, out=s)
        s += eps
        xp.divide(mi, s, out=s)
        s *= step_size
        if decay:
            pi *= 1 - decay
        pi -= s


class Adam(Optimizer):
    """Adam with bias correction; eps stands outside the root and after the correction, as in the paper.

        m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g²,  p = p - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

    t is 1 at the first update. lr may be a schedule. The defaults betas=(0.9, 0.98), eps=1e-9 are those of section 5.3.
    Source: Kingma and Ba 2015, algorithm 1. Derivation: docs/derivations/adam.md.
    """

    buffers = ("m", "v")
    weight_decay = 0.0

    def __init__(self, parameters, lr=1e-3, betas=(0.9, 0.98), eps=1e-9):
        super().__init__(parameters, lr)
        check_real(self, eps=eps)
        if not (isinstance(betas, (tuple, list)) and len(betas) == 2 and all(0 <= b < 1 for b in betas)):
            raise ValueError(f"{type(self).__name__}: betas must be two numbers in 0 <= b < 1, got {betas!r}")
        if not eps > 0:
            raise ValueError(f"{type(self).__name__}: eps must be positive, got {eps!r}")
        self.betas, self.eps = betas, eps

    @entrywise
    def update(self, p, lr, m, v):
        """Change p.data, m and v by one step."""
        step_size = lr / (1 - self.betas[0] ** self.t)
        correction = 1 - self.betas[1] ** self.t
        decay = lr * self.weight_decay
        value = widen(p.data)
        arrays = (value, widen(p.grad), m, v)
        fits = array_module(p.data).__name__ == "numpy" and all(a.flags.c_contiguous for a in arrays)
        update = adam_step if fits else adam_step_plain
        update(*arrays, step_size, self.betas, self.eps, correction, decay)
        if is_half(p.data):
            p.data[...] = value


class AdamW(Adam):
    """Adam with decoupled weight decay: besides Adam's step, p shrinks by lr * weight_decay * p.

    The decay does not pass through m and v. Source: Loshchilov and Hutter 2019, algorithm 2.
    """

    def __init__(self, parameters, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(parameters, lr, betas, eps)
        check_real(self, weight_decay=weight_decay)
        if not weight_decay >= 0:
            raise ValueError(f"AdamW: weight_decay must not be negative, got {weight_decay!r}")
        self.weight_decay = weight_decay
