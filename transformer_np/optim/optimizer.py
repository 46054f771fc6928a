"""What every optimiser shares: parameters, a step counter, a learning rate that may follow a schedule, and state."""

import builtins
import math
from collections.abc import Iterable

import numpy as np

from ..backend import array_module, is_half, to_numpy
from ..checks import check_real
from ..module import Parameter

SMALL = 4096  # numbers: of arrays smaller than this, most of the time goes into calling


def entrywise(update):
    """Mark an `update` in which no number of a parameter depends on another: small ones go through it together."""
    update.entrywise = True
    return update


class Optimizer:
    """Update parameters from their gradients. A subclass names its `buffers` and writes `update`.

    Parameters of float16 or bfloat16 are updated in float32 and rounded, so steps below their last digit are lost: to
    train in such a type use the `precision` of `TrainStep`, which keeps parameters in float32.

    `lr` is a number, or a function of the step (1 at the first update), such as `NoamSchedule`. `t` counts the updates.
    Raises ValueError for an empty list, for something that is no Parameter, and for a learning rate that is not
    positive.
    """

    buffers = ()

    def __init__(self, parameters, lr):
        if not isinstance(parameters, Iterable):
            raise TypeError(f"{type(self).__name__}: pass model.parameters(), got a {type(parameters).__name__}")
        self.parameters = list(parameters)
        if not self.parameters:
            raise ValueError(f"{type(self).__name__}: got no parameters")
        for p in self.parameters:
            if not isinstance(p, Parameter):
                raise ValueError(
                    f"{type(self).__name__}: pass model.parameters(), got a {type(p).__name__} in the list"
                )
        if len({id(p) for p in self.parameters}) != len(self.parameters):
            raise ValueError(f"{type(self).__name__}: a parameter is listed twice: a shared one must be updated once")
        if not callable(lr):
            check_real(self, lr=lr)
            if not 0 < lr < math.inf:
                raise ValueError(f"{type(self).__name__}: lr must be positive, got {lr!r}")
        self.lr = lr
        self.t = 0
        self.state = {name: [None] * len(self.parameters) for name in self.buffers}

    def learning_rate(self, step):
        """Return the learning rate of the update number `step`, counted from 1."""
        return self.lr(step) if callable(self.lr) else self.lr

    def step(self, map=map):
        """Update every parameter once from its gradient; with a `map` of its own, TrainStep shares them out.

        Raises RuntimeError where no parameter has a gradient at all, and ValueError where the schedule gives something
        that is no learning rate; then nothing has changed.
        """
        if not any(p.has_grad for p in self.parameters):
            raise RuntimeError(
                f"{type(self).__name__}.step: no parameter has a gradient: call backward after zero_grad and before "
                "step, on the model whose parameters this optimiser was given"
            )
        lr = self.learning_rate(self.t + 1)
        check_real(self, lr=lr)
        if not 0 <= lr < math.inf:
            raise ValueError(f"{type(self).__name__}: lr is {lr!r} at step {self.t + 1}")
        lr = float(lr)  # a NumPy float64 would promote float32 parameters
        self.t += 1

        def update(p, i):
            for name in self.buffers:
                self.state[name][i] = _matching(self.state[name][i], p.data)
            self.update(p, lr, *(self.state[name][i] for name in self.buffers))

        alone = range(len(self.parameters))
        if map is builtins.map and getattr(self.update, "entrywise", False):
            alone, small = self._small_ones()
            for those in small:
                self._update_together(those, lr)
        list(map(update, [self.parameters[i] for i in alone], alone))

    def _small_ones(self):
        """Return the indices of parameters to update alone, and of those to update together, a list for each dtype."""
        alone, small = [], {}
        for i, p in enumerate(self.parameters):
            together = p.size <= SMALL and array_module(p.data) is np and not is_half(p.data)
            (small.setdefault(p.data.dtype, []) if together else alone).append(i)
        return alone, small.values()

    def _update_together(self, indices, lr):
        """Update parameters laid end to end: alone, a hundred vectors would take a hundred times a dozen calls."""
        arrays = []
        for i in indices:
            p = self.parameters[i]
            for name in self.buffers:
                self.state[name][i] = _matching(self.state[name][i], p.data)
            arrays.append([p.data, *(self.state[name][i] for name in self.buffers)])
        values, *buffers = (np.concatenate([a.reshape(-1) for a in column]) for column in zip(*arrays, strict=True))
        together = Parameter(values)
        together.grad = np.concatenate([self.parameters[i].grad.reshape(-1) for i in indices])
        self.update(together, lr, *buffers)
        end = 0
        for those in arrays:
            start, end = end, end + those[0].size
            for array, whole in zip(those, (values, *buffers), strict=True):
                array[...] = whole[start:end].reshape(array.shape)

    def update(self, p, lr, *buffers):
        """Change `p.data` and the buffers in place, from `p.grad`."""
        raise NotImplementedError

    def zero_grad(self):
        """Empty the gradients."""
        for p in self.parameters:
            p.zero_grad()

    def state_dict(self):
        """Return the step counter and copies of the buffers, to go on later just where one stopped."""
        state = {"t": np.asarray(self.t)}
        for name in self.buffers:
            for i, buffer in enumerate(self.state[name]):
                if buffer is not None:
                    state[f"{name}.{i}"] = np.array(to_numpy(buffer))
        return state

    def load_state_dict(self, state):
        """Take over a state_dict. Raises ValueError, before anything changes, for buffers that do not fit."""
        expected = {f"{name}.{i}": p for name in self.buffers for i, p in enumerate(self.parameters)}
        if "t" not in state or (state["t"] > 0 and expected.keys() - state.keys()):
            raise ValueError(f"{type(self).__name__}.load_state_dict: the step counter t or some buffers are missing")
        for key, value in state.items():
            if key == "t":
                continue
            p = expected.get(key)
            if p is None or value.shape != p.shape or value.dtype != _wide_dtype(p.data):
                raise ValueError(f"{type(self).__name__}.load_state_dict: {key} does not fit these parameters")
        self.t = int(state["t"])
        for name in self.buffers:
            for i, p in enumerate(self.parameters):
                value = state.get(f"{name}.{i}")
                self.state[name][i] = None if value is None else array_module(p.data).array(value)


def _matching(buffer, data):
    """Return the buffer on the device of `data`, and with its dtype, which the model may have changed; None as zeros.

    For float16 and bfloat16 it is float32: squares of gradients would soon be 0 or infinite there.
    """
    xp, dtype = array_module(data), _wide_dtype(data)
    if buffer is not None and buffer.dtype == dtype and array_module(buffer) is xp:
        return buffer
    if buffer is None:
        return xp.zeros(data.shape, dtype)
    return xp.asarray(to_numpy(buffer) if xp is np else buffer, dtype=dtype)


def _wide_dtype(data):
    return np.dtype(np.float32) if is_half(data) else data.dtype
