"""Finite differences in the middle of a model: move one number of one recorded step, and see what the loss does.

The tracer sits between the statements, so it can put another array in a variable's place right after it was set.
"""

import numpy as np

import transformer_np as tnp
from transformer_np.tracing.recorder import Recorder
from transformer_np.tracing.run import call_backward, objects_in, random_like

H = 2.0**-17  # truncation about H² = 6e-11, rounding about 1e-16 / H = 1e-11
TOLERANCE = 2e-8  # of the gradient's largest entry; of 0.1 where that is smaller, since the loss itself is rounded


def traced(layer, inputs):
    """Trace a layer with its dropout masks held; return the trace, and a function that gives sum(dy * y) again."""
    layer.replay_dropout(True)
    y = layer.forward(*inputs)
    dy = random_like(y, seed=5)
    call_backward(layer, y, dy)  # uses the forward up
    layer.zero_grad()
    dys = dy if isinstance(dy, tuple) else (dy,)

    def loss():
        y = layer.forward(*inputs)
        return sum(float((d * part).sum()) for d, part in zip(dys, y if isinstance(y, tuple) else (y,), strict=True))

    return tnp.trace(layer, dy=dy)(*inputs), loss


class Mover:
    """Gives the loss with one number of one step of forward, or of one parameter, moved."""

    def __init__(self, layer, trace, loss):
        self.trace, self.loss = trace, loss
        self.objects = {}  # (dotted name, class) -> the objects that are called so
        for key, (name, thing) in objects_in(layer).items():
            self.objects.setdefault((name, type(thing).__name__), {})[key] = (name, thing)

    def slope(self, step, index):
        """d loss / d step.value[index], numerically."""
        where = (step.module, step.kind)
        same = [s for s in self.trace.steps if (s.module, s.kind, s.variable) == (*where, step.variable)]
        count = sum(s.call == step.call and s.index <= step.index for s in same)
        up, down = (self._moved(self.objects[where], step, count, index, h) for h in (H, -H))
        return (up - down) / (2 * H)

    def parameter_slope(self, p, index):
        """d loss / d parameter.data[index], numerically."""
        value, losses = float(p.data[index]), []
        for h in (H, -H):
            p.data[index] = value + h
            losses.append(self.loss())
        p.data[index] = value
        return (losses[0] - losses[1]) / (2 * H)

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


def entries_of(gradient, rng, n):
    """The largest entry and some at random."""
    largest = np.unravel_index(abs(gradient).argmax(), gradient.shape)
    others = (tuple(int(rng.integers(size)) for size in gradient.shape) for _ in range(n - 1))
    return abs(gradient[largest]), {tuple(int(i) for i in largest), *others}


def prove(layer, inputs, n_entries=2, seed=0):
    """Check the gradients of a trace by differences; return (trace, {name: what is wrong}, names that agreed).

    Every value of forward that has a gradient is moved, and every parameter. What a method returns without naming it
    cannot be moved; its gradient is found equal to one that was checked, see `unproved`.
    """
    trace, loss = traced(layer, inputs)
    mover, rng = Mover(layer, trace, loss), np.random.default_rng(seed)
    wrong, right = {}, []

    def check(name, gradient, slope, said):
        largest, entries = entries_of(gradient, rng, n_entries)
        for index in entries:
            numeric = slope(index)
            if not abs(numeric - gradient[index]) <= TOLERANCE * max(largest, 0.1):
                wrong[name] = (index, numeric, float(gradient[index]), said)
        if name not in wrong:
            right.append(name)

    for step in trace.forward:
        back = trace.gradient_of(step)
        if back is not None and step.role != "returned":
            check(back.name, back.value, lambda index, step=step: mover.slope(step, index), back.source)
    for name, p in layer.named_parameters():
        check(f"{name}.grad", trace[f"{name}.grad"], lambda index, p=p: mover.parameter_slope(p, index), "")
    return trace, wrong, right


def unproved(trace, right):
    """Return the names of those gradients that no difference proved, and that equal none that was proved.

    An array that is handed on, or returned by a call and given a name, is the same array under two names. What a later
    statement finishes in place is on its way; and so is a parameter's gradient as long as something is added to it.
    """
    proved = {trace[name].tobytes() for name in right}
    values = {(s.module, s.variable) for s in trace.forward}
    changed = {(name, s.variable, s.call) for s in trace.backward for name in s.inputs}
    left = []
    for step in trace.backward:
        name = step.variable.split("[")[0]
        is_gradient = name.startswith("d") and len(name) > 1 and (step.module, name) not in values
        finished = (step.name, step.variable, step.call) not in changed and step.role != "gradient"
        if is_gradient and finished and step.value.dtype.kind == "f" and step.value.tobytes() not in proved:
            left.append(step.name)
    return left
