"""Small layers for the tests of the checker, right ones and some that break one rule each. None uses this package."""

import numpy as np


class Linear:
    """y = x W + b with the gradients in dW and db, as courses write it."""

    def __init__(self, n_in=5, n_out=4, seed=0):
        rng = np.random.default_rng(seed)
        self.W, self.b = rng.normal(size=(n_in, n_out)), rng.normal(size=n_out)

    def forward(self, x):
        self.x = x
        return x @ self.W + self.b

    def backward(self, dy):
        x, dy2 = self.x.reshape(-1, self.W.shape[0]), dy.reshape(-1, self.W.shape[1])
        self.dW, self.db = x.T @ dy2, dy2.sum(0)
        return dy @ self.W.T


class LayerNorm:
    def __init__(self, d=6):
        self.gamma, self.beta = np.ones(d), np.zeros(d)

    def forward(self, x):
        centred = x - x.mean(-1, keepdims=True)
        self.scale = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        self.xhat = centred * self.scale
        return self.gamma * self.xhat + self.beta

    def backward(self, dy):
        self.dgamma = (dy * self.xhat).reshape(-1, len(self.gamma)).sum(0)
        self.dbeta = dy.reshape(-1, len(self.beta)).sum(0)
        g = dy * self.gamma
        return self.scale * (g - g.mean(-1, keepdims=True) - self.xhat * (g * self.xhat).mean(-1, keepdims=True))


class Softmax:
    def forward(self, x):
        p = np.exp(x - x.max(-1, keepdims=True))
        self.p = p / p.sum(-1, keepdims=True)
        return self.p.copy()

    def backward(self, dy):
        return self.p * (dy - (dy * self.p).sum(-1, keepdims=True))


class ReLU:
    def forward(self, x):
        self.on = x > 0
        return np.where(self.on, x, 0)

    def backward(self, dy):
        return dy * self.on


class Max:
    def forward(self, x):
        self.shape, self.at = x.shape, x.argmax(-1)
        return x.max(-1)

    def backward(self, dy):
        dx = np.zeros(self.shape)
        np.put_along_axis(dx, self.at[..., None], dy[..., None], -1)
        return dx


class Dropout:
    def __init__(self, p=0.5, seed=0):
        self.p, self.rng = p, np.random.default_rng(seed)

    def forward(self, x):
        self.mask = (self.rng.random(x.shape) >= self.p) / (1 - self.p)
        return x * self.mask

    def backward(self, dy):
        return dy * self.mask


class Embedding:
    def __init__(self, n=7, d=3, seed=0):
        self.E = np.random.default_rng(seed).normal(size=(n, d))

    def forward(self, ids):
        self.ids = ids
        return self.E[ids]

    def backward(self, dy):
        self.dE = np.zeros_like(self.E)
        np.add.at(self.dE, self.ids, dy)


class Parameter:
    def __init__(self, data):
        self.data, self.grad = data, np.zeros_like(data)


class Scale:
    """y = x * s with a Parameter that gathers its gradient."""

    def __init__(self, d=6):
        self.s = Parameter(np.linspace(0.5, 2, d))

    def forward(self, x):
        self.x = x
        return x * self.s.data

    def backward(self, dy):
        self.s.grad += (dy * self.x).reshape(-1, self.s.data.size).sum(0)
        return dy * self.s.data


class CausalMean:
    """y_t = tanh of the mean of x_0 .. x_t along the last axis but one."""

    def forward(self, x):
        self.m = np.tril(np.ones((x.shape[-2],) * 2)) / np.arange(1, x.shape[-2] + 1)[:, None]
        self.y = np.tanh(self.m @ x)
        return self.y.copy()

    def backward(self, dy):
        return self.m.T @ (dy * (1 - self.y**2))


class CrossEntropy:
    """A loss: forward(logits, targets) -> float, backward() -> dlogits."""

    def forward(self, logits, targets):
        p = np.exp(logits - logits.max(-1, keepdims=True))
        self.p, self.targets = p / p.sum(-1, keepdims=True), targets
        return float(-np.log(np.take_along_axis(self.p, targets[:, None], -1)).mean())

    def backward(self):
        d = self.p.copy()
        d[np.arange(len(d)), self.targets] -= 1
        return d / len(d)


class Chain:
    """Layers one after another, found in a list."""

    def __init__(self, *layers):
        self.layers = list(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer.forward(x)
        return x

    def backward(self, dy):
        for layer in reversed(self.layers):
            dy = layer.backward(dy)
        return dy


class Residual:
    def __init__(self, inner):
        self.inner = inner

    def forward(self, x):
        return x + self.inner.forward(x)

    def backward(self, dy):
        return dy + self.inner.backward(dy)


def x_of(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def broken(cls, **methods):
    """A subclass with some methods replaced."""
    return type(cls.__name__, (cls,), methods)
