"""Finite differences for the tests: plain, slow, and with nothing in common with the package's own gradient checker.

Every element of an array is moved up and down, the *outputs* are differenced, and only then contracted with a random
upstream gradient. Two step sizes give Richardson's extrapolation, whose error falls with the fourth power of the step.
"""

import numpy as np

from transformer_np.backend import array_module, to_numpy
from transformer_np.layers import ReLU

STEP = 2.0**-12  # truncation about STEP^4 = 4e-15, rounding about 1e-16 / STEP = 4e-13: both far below TOLERANCE
TOLERANCE = 1e-8  # of the largest entry of the array's gradient
FAR_FROM_KINK = 8 * STEP  # a case keeps every ReLU input at least so far from 0 before anything is moved


def numeric_gradient(outputs, array, upstream):
    """Return d(sum(upstream * outputs())) / d(array); `outputs` reads `array`, which is moved in place and put back."""
    gradient = np.empty(array.shape)
    for index in np.ndindex(array.shape):
        value, slopes = float(array[index]), []
        for step in (STEP, STEP / 2):
            array[index] = value + step
            up = outputs()
            array[index] = value - step
            slopes.append(float((upstream * (up - outputs())).sum()) / (2 * step))
        array[index] = value
        gradient[index] = (4 * slopes[1] - slopes[0]) / 3
    return gradient


class KinkWatch:
    """Sees the input of every ReLU inside a layer. A difference across a kink is no derivative, so none may cross."""

    def __init__(self, layer):
        self.seen = {}
        for name, module in layer.named_modules():
            if isinstance(module, ReLU):
                module.forward = self._watched(name, module.forward)

    def _watched(self, name, forward):
        def watched(x):
            self.seen[name] = x
            return forward(x)

        return watched

    def signs(self):
        """The side of the kink that every unit is on, after the last forward."""
        return {name: to_numpy(x > 0) for name, x in self.seen.items()}

    def nearest(self):
        """The smallest distance of a unit from its kink, after the last forward."""
        return min((float(abs(x).min()) for x in self.seen.values()), default=np.inf)


def random_upstream(y, rng):
    """A random, non-uniform upstream gradient of the output's shape (a number where the output is one)."""
    if np.ndim(y) == 0:
        return np.float64(0.5 + rng.random())
    return array_module(y).asarray(rng.standard_normal(y.shape))


def gradient_pairs(layer, inputs, seed=0, only=None):
    """Run forward and backward once, then differences: {name: (the layer's gradient, the numeric one)}, both NumPy.

    Names are those of the parameters, and "input 0" and so on for every floating-point input; with `only`, just the
    array of that name is differenced. Dropout must replay.
    """
    watch = KinkWatch(layer)
    y = layer.forward(*inputs)
    signs = watch.signs()
    upstream = random_upstream(y, np.random.default_rng(seed))
    layer.zero_grad()
    returned = layer.backward(float(upstream) if np.ndim(y) == 0 else upstream)
    returned = returned if isinstance(returned, tuple) else (returned,)

    def outputs():
        y = layer.forward(*inputs)
        for name, side in watch.signs().items():
            assert np.array_equal(side, signs[name]), f"{name}: a unit crossed its kink, so this difference is no slope"
        return y

    arrays = {name: (p.grad, p.data) for name, p in layer.named_parameters()}
    for i, x in enumerate(inputs):
        if x is not None and x.dtype.kind == "f":
            arrays[f"input {i}"] = returned[i], x
        else:
            assert i >= len(returned) or returned[i] is None  # ids and masks have no gradient
    wanted = arrays if only is None else [only]
    return {name: (to_numpy(arrays[name][0]), numeric_gradient(outputs, arrays[name][1], upstream)) for name in wanted}


def relative_errors(pairs, zero=()):
    """Return {name: max|a - n| / max|n|}.

    For the names that end in one of `zero`, whose true gradient is exactly zero, max(|a|, |n|) over the largest
    gradient of any array takes its place.
    """
    largest = max(abs(n).max() for _, n in pairs.values())
    errors = {}
    for name, (a, n) in pairs.items():
        assert a.dtype == np.float64, f"{name}: {a.dtype}"
        assert a.shape == n.shape, f"{name}: {a.shape}, {n.shape}"
        if name.endswith(tuple(zero)):
            errors[name] = max(abs(a).max(), abs(n).max()) / largest
        else:
            assert abs(n).max() > 1e-4 * largest, f"{name}: the gradient is too small to say anything"
            errors[name] = abs(a - n).max() / abs(n).max()
    return errors


def assert_gradients(layer, inputs, zero=(), seed=0):
    """Fail unless every gradient of every input and parameter agrees with differences to TOLERANCE."""
    errors = relative_errors(gradient_pairs(layer, inputs, seed), zero)
    wrong = {name: f"{error:.1e}" for name, error in errors.items() if not error <= TOLERANCE}
    assert not wrong, f"relative errors of {type(layer).__name__}: {wrong}"
    return errors


def randomise(layer, rng):
    """Move every parameter by a random amount: gamma away from 1, beta and the biases away from 0; return the layer."""
    for p in layer.parameters():
        p.data += array_module(p.data).asarray(0.3 * rng.standard_normal(p.shape), dtype=p.data.dtype)
    return layer


def away_from_kinks(build, device="numpy"):
    """Call build(rng) -> (layer, inputs) with seeds 0, 1, ... until no ReLU input lies near its kink; on `device`."""
    for seed in range(50):
        layer, inputs = build(np.random.default_rng(seed))
        layer = randomise(layer, np.random.default_rng(seed + 1000)).to(device)
        layer.replay_dropout(True)
        if device != "numpy":
            import cupy

            inputs = tuple(x if x is None else cupy.asarray(x) for x in inputs)
        watch = KinkWatch(layer)
        layer.forward(*inputs)
        if watch.nearest() > FAR_FROM_KINK:
            return layer, inputs
    raise AssertionError("no seed keeps every unit away from its kink")
