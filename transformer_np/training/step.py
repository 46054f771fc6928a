"""One training step of any model: forward, loss, backward, clip, update; on one thread or several."""

import copy
import math

import numpy as np

from ..backend import array_module, is_reading_late, read, reading_at_the_end
from ..checks import check_choice, check_dict
from ..optim.clipping import grad_norm, shorten
from ..optim.optimizer import Optimizer
from .mixed_precision import PRECISIONS, HalfCopy, LossScaler
from .random_streams import RandomStreams
from .sharing import Shards, threads_for


class TrainStep:
    """`loss = step(*inputs, targets)`: forward, loss, backward, clip by global norm, update; returns the loss, a float.

    The model is any Module; all arguments but the last go to its forward, the last to the loss: an array, or a tuple of
    arrays for a SumOfLosses. `clip` is the greatest gradient norm allowed (None: no clipping).
    With `threads` the batch is cut into that many shards of sentences, which run side by side, each on a replica of the
    model and with the matrix library held to one thread; then their gradients are added, always in the same order. So
    the result is that of the whole batch but for rounding, and the same every time for a given number of threads.
    threads="auto" takes as many as there are cores (8 at most) where the model is wide enough for that to be faster.
    With precision="float16" or "bfloat16" forward and backward are computed in that type, on a copy of the model; its
    parameters, the gradients that are clipped and the updates stay in float32 (see `mixed_precision`). In float16 the
    loss is scaled by `step.scaler`, and a step whose gradients are not finite is left out. For a GPU: a CPU has no
    float16 arithmetic of its own.
    `step.state_dict()` is all that a training needs to go on later, in another process, as if it had never stopped.
    On a GPU the step waits for the device once, after backward: to read the loss, the norm, and whether ids were valid.
    Raises FloatingPointError, with the parameters as they were, where the loss or, when clipping, a gradient is not
    finite; ValueError for threads < 1, another precision, or both at once.
    """

    def __init__(self, model, loss_fn, optimizer, threads=None, clip=None, *, precision=None):
        if threads == "auto":
            threads = threads_for(model) if precision is None else None
        if threads is not None and (isinstance(threads, str) or threads < 1):
            raise ValueError(f'TrainStep: threads must be at least 1, "auto" or None, got {threads!r}')
        if precision is not None:
            check_choice(self, "precision", precision, PRECISIONS)
        if threads is not None and precision is not None:
            raise ValueError("TrainStep: threads are for the CPU and precision for a GPU: give one of them")
        self.model, self.loss_fn, self.optimizer, self.clip = model, loss_fn, optimizer, clip
        self.threads = threads
        self._shards = None if threads is None else Shards(model, threads)
        self._half = None if precision is None else HalfCopy(model, precision)
        self.scaler = LossScaler() if precision == "float16" else None

    def __call__(self, *batch):
        self.optimizer.zero_grad()
        if self._shards is not None:
            with self._shards.at_work():
                return self._step_in_shards(batch)
        loss, norm = self._loss_and_norm(batch)
        self._check(loss)
        if self.scaler is not None:
            self.scaler.update(math.isfinite(norm))
            if not math.isfinite(norm):
                return loss
        self._clip(norm)
        self.optimizer.step()
        return loss

    def state_dict(self):
        """Return a flat dict of NumPy arrays, copies of all that a step changes.

        "model.*" are the parameters (float32 where `precision` is used), "optimizer.*" what `Optimizer.state_dict`
        gives, "scaler.*" the loss scaler, where there is one, "random.*" where the streams of dropout stand, in the
        model and in each of its replicas. `safetensors.numpy.save_file` writes it as it is.
        """
        return {
            f"{place}.{name}": np.asarray(value)
            for place, part in self._parts().items()
            for name, value in part.state_dict().items()
        }

    def load_state_dict(self, state):
        """Take over a state_dict of such a step: the same model, optimizer, threads and precision; on any device.

        Raises, before anything changes, TypeError for no dict and ValueError for names, shapes, types or numbers that
        do not fit, or the state of another optimizer.
        """
        parts, who = self._parts(), "TrainStep.load_state_dict"
        check_dict(who, state)
        states = {place: {} for place in parts}
        for name, value in state.items():
            place, _, rest = name.partition(".")
            if place not in parts:
                expected = ", ".join(f"{place}.*" for place in parts)
                raise ValueError(f"{who}: unexpected {name!r}, expected {expected}")
            states[place][rest] = value
        for place, part in parts.items():
            if part is not self.model:  # which checks its own when it loads, before the others change
                part.check_state_dict(states[place])
        for place, part in parts.items():
            part.load_state_dict(states[place])

    def _parts(self):
        """All that has a state, by the beginning of its names there; the model first."""
        replicas = {} if self._shards is None else {f"shard{i}": m for i, m in enumerate(self._shards.replicas)}
        if self._half is not None:
            replicas["half"] = self._half.model
        scaler = {} if self.scaler is None else {"scaler": self.scaler}
        random = RandomStreams(model=self.model, **replicas)
        return {"model": self.model, "optimizer": self.optimizer, **scaler, "random": random}

    def _step_in_shards(self, batch):
        """The same, with the sentences and then the parameters shared out among threads."""
        n_tokens, shards = self.loss_fn.count(batch[-1]), self._shards

        def gradients(replica, shard):
            return self._gradients(replica, copy.copy(self.loss_fn), shard, n_tokens=n_tokens)

        loss = sum(shards.gradients(gradients, batch))
        self._check(loss)
        if type(self.optimizer).step is not Optimizer.step:
            shards.add_all()
        self._clip(self._norm(shards.map), shards.map)
        self.optimizer.step(shards.map)
        return loss

    def _loss_and_norm(self, batch):
        """Fill the gradients; return the loss and the norm of the gradients, None where nobody wants to know it."""
        if array_module(*batch) is np:
            return self._loss(batch), self._norm()
        numbers = []
        with reading_at_the_end():
            wanted = [x for x in (self._loss(batch), self._norm()) if x is not None]
            read(lambda *values: numbers.extend(values), *wanted)
        return numbers[0], numbers[1] if len(numbers) > 1 else None

    def _loss(self, batch):
        """Fill the gradients, in the precision asked for; return the loss."""
        if self._half is None:
            return self._gradients(self.model, self.loss_fn, batch)
        *inputs, targets = batch
        scale = 1.0 if self.scaler is None else self.scaler.scale
        model, batch = self._half.refresh(), (*self._half.rounded(inputs), targets)
        with np.errstate(over="ignore", invalid="ignore"):  # a scale that is too large shows in the norm
            loss = self._gradients(model, self.loss_fn, batch, scale)
            self._half.hand_over(scale)
        return loss

    @staticmethod
    def _gradients(model, loss_fn, batch, scale=1.0, **options):
        """Forward, loss, backward of the loss times `scale`; return the loss."""
        *inputs, targets = batch
        loss = loss_fn.forward(model.forward(*inputs), targets, **options)
        if is_reading_late() or math.isfinite(loss):
            model.backward(loss_fn.backward(scale))
        return loss

    def _check(self, loss):
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} at step {self.optimizer.t + 1}: try a smaller learning rate")

    def _norm(self, map=map):
        return None if self.clip is None and self.scaler is None else grad_norm(self.optimizer.parameters, map)

    def _clip(self, norm, map=map):
        if self.clip is not None:
            shorten(self.optimizer.parameters, norm, self.clip, map)
