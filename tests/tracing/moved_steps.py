"""Finite differences in the middle of a model: move one number of one recorded step, and see what the loss does.

The tracer sits between the statements, so it can put another array in a variable's place right after it was set.
"""

import numpy as np

import transformer_np as tnp
from transformer_np.tracing.recorder import Recorder
from transformer_np.tracing.run import objects_in, random_like

H = 2.0**-17  # truncation about H² = 6e-11, rounding about 1e-16 / H = 1e-11
TOLERANCE = 2e-8  # of the largest entry of the gradient, at least 1e-3 of 1


def traced(layer, inputs):
    """Trace a layer with its dropout masks held; return the trace, and a function that gives sum(dy * y) again."""
    layer.replay_dropout(True)
    dy = random_like(layer.forward(*inputs), seed=5)
    trace = tnp.trace(layer, dy=dy)(*inputs)
    dys = dy if isinstance(dy, tuple) else (dy,)

    def loss():
        y = layer.forward(*inputs)
        ys = y if isinstance(y, tuple) else (y,)
        return sum(float((d * part).sum()) for d, part in zip(dys, ys, strict=True))

    return trace, loss


class Mover:
    """Gives the loss with one number of one step of forward moved."""

    def __init__(self, layer, trace, loss):
        self.trace, self.loss = trace, loss
        self.objects = {}  # dotted name -> the objects of that name
        for key, (name, thing) in objects_in(layer).items():
            self.objects.setdefault(name, {})[key] = (name, thing)

    def slope(self, step, index):
        """d loss / d step.value[index], numerically."""
        same = (
            s for s in self.trace.steps if (s.module, s.variable, s.kind) == (step.module, step.variable, step.kind)
        )
        count = sum(s.call == step.call and s.index <= step.index for s in same)
        objects = {k: v for k, v in self.objects[step.module].items() if type(v[1]).__name__ == step.kind}
        return (self._moved(objects, step, count, index, H) - self._moved(objects, step, count, index, -H)) / (2 * H)

    def _moved(self, objects, step, count, index, h):
        done = []

        def replace(call, variable, n, array):
            if (call.number, variable, n) != (step.call, step.variable, count):
                return None
            done.append(array)
            assert np.array_equal(array, step.value)
            other = array.copy()
            other[index] += h
            return other

        with Recorder(objects, replace):
            loss = self.loss()
        assert len(done) == 1, f"{step.name} was set {len(done)} times"
        return loss


def pairs_of(trace):
    """Yield (step X, its gradient dX) for all steps of forward that hold floats and can be put in a variable."""
    for step in trace.forward:
        gradient = trace.gradient_of(step)
        if gradient is not None and step.value.dtype.kind == "f" and step.role != "returned":
            yield step, gradient


def wrong_gradients(layer, inputs, n_entries=2, seed=0):
    """Return {name: (numeric, in the trace)} of the gradients that differ, and the names that agreed."""
    trace, loss = traced(layer, inputs)
    mover, rng = Mover(layer, trace, loss), np.random.default_rng(seed)
    wrong, right = {}, []
    for step, gradient in pairs_of(trace):
        largest = np.unravel_index(abs(gradient.value).argmax(), gradient.value.shape)
        entries = {largest, *(tuple(int(rng.integers(n)) for n in step.value.shape) for _ in range(n_entries - 1))}
        scale = max(abs(gradient.value[largest]), 1e-3)
        for index in entries:
            numeric = mover.slope(step, index)
            if not abs(numeric - gradient.value[index]) <= TOLERANCE * scale:
                wrong[gradient.name] = (numeric, float(gradient.value[index]), gradient.source)
        if gradient.name not in wrong:
            right.append(gradient.name)
    return trace, wrong, right


def unproved(trace, right):
    """Return the names of those gradients that no difference proved, and that equal none that was proved.

    An array that is handed on, or returned by a call and given a name, is the same array under two names. Values that
    a later statement finishes in place are on their way, and no gradients yet.
    """
    proved = {trace[name].tobytes() for name in right}
    proved |= {gradient.tobytes() for gradient in trace._parameter_gradients.values()}
    left = []
    for step in trace.backward:
        finished = not any(
            step.name in s.inputs and s.variable == step.variable for s in trace.backward if s.call == step.call
        )
        if step.variable[0] == "d" and step.variable != "d" and step.value.dtype.kind == "f" and finished:
            if step.value.tobytes() not in proved:
                left.append(step.name)
    return left
