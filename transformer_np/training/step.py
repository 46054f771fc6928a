"""One training step of any model: forward, loss, backward, clip, update; on one thread or several."""

import copy
import math
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np

from ..backend import array_module, is_reading_late, read, reading_at_the_end
from ..optim.clipping import grad_norm, shorten
from ..optim.optimizer import Optimizer
from .mixed_precision import HalfCopy, LossScaler
from .replica import paired, replicate, synchronise
from .sharing import deal, threads_for


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
    On a GPU the step waits for the device once, after backward: to read the loss, the norm, and whether ids were valid.
    Raises FloatingPointError, with the parameters as they were, where the loss or, when clipping, a gradient is not
    finite; ValueError for threads < 1, another precision, or both at once.
    """

    def __init__(self, model, loss_fn, optimizer, threads=None, clip=None, *, precision=None):
        if threads == "auto":
            threads = threads_for(model) if precision is None else None
        if threads is not None and threads < 1:
            raise ValueError(f"TrainStep: threads must be at least 1, or None, got {threads}")
        if threads is not None and precision is not None:
            raise ValueError("TrainStep: threads are for the CPU and precision for a GPU: give one of them")
        self.model, self.loss_fn, self.optimizer, self.clip = model, loss_fn, optimizer, clip
        self.threads = threads
        self._pool = None
        self._half = None if precision is None else HalfCopy(model, precision)
        self.scaler = LossScaler() if precision == "float16" else None

    def __call__(self, *batch):
        self.optimizer.zero_grad()
        if self.threads is None:
            loss, norm = self._loss_and_norm(batch)
            self._check(loss)
            if self.scaler is not None:
                self.scaler.update(math.isfinite(norm))
                if not math.isfinite(norm):
                    return loss
            self._clip(norm)
            self.optimizer.step()
            return loss
        if self._pool is None:
            self._start_threads()
        with self._blas.limit(limits=1, user_api="blas"):
            loss = self._gradients_in_shards(batch)
            self._check(loss)
            if type(self.optimizer).step is not Optimizer.step:
                self._map(lambda parameter: None, self._parameters)  # its step may look at gradients before
            try:
                self._clip(self._norm(self._map), self._map)
                self.optimizer.step(self._map)
            finally:
                for parameter in self._parameters:  # those that are not trained
                    self._add_up(parameter)
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

    def _start_threads(self):
        from threadpoolctl import ThreadpoolController

        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="shard")
        self._blas = ThreadpoolController()
        self._parameters = None

    def _follow_the_model(self):
        """Let the replicas see the model as it is now; make them anew where it has other parameters than before."""
        parameters = self.model.parameters()
        if parameters != self._parameters:
            self._parameters = parameters
            self._replicas = [replicate(self.model) for _ in range(self.threads)]
            self._pairs = [paired(replica, self.model) for replica in self._replicas]
            self._of_each = [replica.parameters() for replica in self._replicas]
        for pairs in self._pairs:
            synchronise(pairs)

    def _gradients_in_shards(self, batch):
        """The same as `_gradients` on the whole batch, with the work shared out."""
        n_tokens = self.loss_fn.count(batch[-1])
        n_shards = min(self.threads, len(batch[0]))
        shards = zip(*(_split(part, n_shards) for part in batch), strict=True)
        self._follow_the_model()

        def shard_gradients(replica, shard):
            return self._gradients(replica, copy.copy(self.loss_fn), shard, n_tokens=n_tokens)

        losses = self._side_by_side(shard_gradients, zip(self._replicas[:n_shards], shards, strict=True))

        self._unsummed = {id(p): parts for p, *parts in zip(self._parameters, *self._of_each, strict=True)}
        for parameter in self._parameters:
            self._add_up(parameter, 1)
        return sum(losses)

    def _add_up(self, parameter, n=None):
        """Add the gradients of its parts, the replicas' parameters, to that of the parameter: the first n, or all."""
        parts = self._unsummed.get(id(parameter), [])
        for part in parts[:n]:
            if part.has_grad:
                parameter.accumulate(part.grad)
                part.zero_grad()
        del parts[:n]

    def _side_by_side(self, function, arguments):
        """Return what function(*arguments) returns for each of the arguments, each in a thread of its own."""
        futures = [self._pool.submit(function, *those) for those in arguments]
        wait(futures)  # all of them, also where one raises: no shard may still be at work when the next step begins
        return [future.result() for future in futures]

    def _map(self, function, parameters, *others):
        """`map`, shared out so that each thread gets about as many numbers.

        Before the first use of a parameter its gradient is summed, which leaves it in the cache of that thread.
        """
        columns = list(zip(parameters, *others, strict=True))
        results = [None] * len(columns)

        def those_in(hand):
            for i in hand:
                self._add_up(parameters[i])
                results[i] = function(*columns[i])

        hands = deal([p.size for p in parameters], self.threads)
        self._side_by_side(those_in, ((hand,) for hand in hands))
        return results

    def _check(self, loss):
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} at step {self.optimizer.t + 1}: try a smaller learning rate")

    def _norm(self, map=map):
        return None if self.clip is None and self.scaler is None else grad_norm(self.optimizer.parameters, map)

    def _clip(self, norm, map=map):
        if self.clip is not None:
            shorten(self.optimizer.parameters, norm, self.clip, map)


def _split(part, n):
    """Cut an array into n shards of sentences; a tuple of arrays into n tuples."""
    if isinstance(part, tuple):
        return list(zip(*(_split(p, n) for p in part), strict=True))
    return array_module(part).array_split(part, n)
