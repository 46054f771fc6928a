"""What every optimiser shares: parameters, a step counter, a learning rate that may follow a schedule, and state."""

import builtins
import math
from collections.abc import Iterable

import numpy as np

from ..backend import array_module, is_half, to_numpy
from ..checks import check_array, check_dict, check_names, check_number, check_real
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
        """Return {name: NumPy copy}: what one needs to go on later just where one stopped.

        Names begin with the optimiser's: "Adam.t" is the step counter, "Adam.lr" the learning rate where it is a
        number, "Adam.m.0" the buffer m of the first parameter. A schedule is a function of the step and has no state;
        nor have betas, weight decay and the like: they are what the optimiser was made with.
        """
        kind = type(self).__name__
        state = {f"{kind}.t": np.asarray(self.t)}
        if not callable(self.lr):
            state[f"{kind}.lr"] = np.asarray(float(self.lr))
        for name, buffer, i, p in self._named_buffers():
            state[name] = np.array(to_numpy(_matching(self.state[buffer][i], p.data)))
        return state

    def check_state_dict(self, state):
        """Raise what `load_state_dict` would: TypeError for no dict; ValueError for the state of another optimiser.

        That is of one of another name, or with other buffers, or of other parameters. Nothing changes.
        """
        kind, who = type(self).__name__, f"{type(self).__name__}.load_state_dict"
        check_dict(who, state)
        kinds = {name.partition(".")[0] for name in state}
        if kinds and kind not in kinds:
            raise ValueError(f"{who}: the state is that of {' and '.join(sorted(kinds))}, expected that of {kind}")
        numbers = {f"{kind}.t"} if callable(self.lr) else {f"{kind}.t", f"{kind}.lr"}
        check_names(who, state, numbers | {name for name, *_ in self._named_buffers()})
        check_number(who, f"{kind}.t", state[f"{kind}.t"], 0, "a whole number of at least 0", kinds="iu")
        if not callable(self.lr):
            check_number(who, f"{kind}.lr", state[f"{kind}.lr"], math.ulp(0.0), "a number above 0")
        for name, _, _, p in self._named_buffers():
            check_array(who, name, state[name], p.shape, _wide_dtype(p.data))

    def load_state_dict(self, state):
        """Take over a state_dict, onto the device of the parameters. Raises as `check_state_dict`, before changes."""
        self.check_state_dict(state)
        kind = type(self).__name__
        self.t = int(state[f"{kind}.t"])
        if not callable(self.lr):
            self.lr = float(state[f"{kind}.lr"])
        for name, buffer, i, p in self._named_buffers():
            xp, value = array_module(p.data), state[name]
            self.state[buffer][i] = _matching(None, p.data)
            self.state[buffer][i][...] = xp.asarray(to_numpy(value) if xp is np else value)

    def _named_buffers(self):
        """Yield (name in a state_dict, name of the buffer, index of the parameter, parameter)."""
        for buffer in self.buffers:
            for i, p in enumerate(self.parameters):
                yield f"{type(self).__name__}.{buffer}.{i}", buffer, i, p


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
