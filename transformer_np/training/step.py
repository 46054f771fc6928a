"""One training step of any model: forward, loss, backward, clip, update; on one thread or several."""

import copy
import math
from concurrent.futures import ThreadPoolExecutor, wait

from ..backend import array_module
from ..optim import clip_grad_norm
from .replica import replicate, synchronise


class TrainStep:
    """`loss = step(*inputs, targets)`: forward, loss, backward, clip by global norm, update; returns the loss, a float.

    The model is any Module; all arguments but the last go to its forward, the last to the loss: an array, or a tuple of
    arrays for a SumOfLosses. `clip` is the greatest gradient norm allowed (None: no clipping).
    With `threads` the batch is cut into that many shards of sentences, which run side by side, each on a replica of the
    model and with the matrix library held to one thread; then their gradients are added, always in the same order. So
    the result is that of the whole batch but for rounding, and the same every time for a given number of threads.
    Raises FloatingPointError, with the parameters as they were, where the loss or, when clipping, a gradient is not
    finite; ValueError for threads < 1.
    """

    def __init__(self, model, loss_fn, optimizer, threads=None, clip=None):
        if threads is not None and threads < 1:
            raise ValueError(f"TrainStep: threads must be at least 1, or None, got {threads}")
        self.model, self.loss_fn, self.optimizer, self.clip = model, loss_fn, optimizer, clip
        self.threads = threads
        self._replicas = None

    def __call__(self, *batch):
        self.optimizer.zero_grad()
        if self.threads is None:
            loss = self._gradients(self.model, self.loss_fn, batch)
            self._check(loss)
            self._clip()
            self.optimizer.step()
            return loss
        if self._replicas is None:
            self._start_threads()
        with self._blas.limit(limits=1, user_api="blas"):
            loss = self._gradients_in_shards(batch)
            self._check(loss)
            self._clip()
            self.optimizer.step(self._pool.map)
        return loss

    @staticmethod
    def _gradients(model, loss_fn, batch, **options):
        """Forward, loss, backward; return the loss."""
        *inputs, targets = batch
        loss = loss_fn.forward(model.forward(*inputs), targets, **options)
        if math.isfinite(loss):
            model.backward(loss_fn.backward())
        return loss

    def _start_threads(self):
        from threadpoolctl import ThreadpoolController

        self._replicas = [replicate(self.model) for _ in range(self.threads)]
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="shard")
        self._blas = ThreadpoolController()

    def _gradients_in_shards(self, batch):
        """The same as `_gradients` on the whole batch, with the work shared out."""
        n_tokens = self.loss_fn.count(batch[-1])
        n_shards = min(self.threads, len(batch[0]))
        shards = list(zip(*(_split(part, n_shards) for part in batch), strict=True))
        replicas = self._replicas[: len(shards)]
        for replica in replicas:
            synchronise(replica, self.model)

        def shard_gradients(replica, shard):
            return self._gradients(replica, copy.copy(self.loss_fn), shard, n_tokens=n_tokens)

        futures = [self._pool.submit(shard_gradients, *pair) for pair in zip(replicas, shards, strict=True)]
        wait(futures)  # all of them, also where one raises: no shard may still be at work when the next step begins
        losses = [future.result() for future in futures]
        of_each = [replica.parameters() for replica in replicas]

        def add_up(parameter, parts):
            for part in parts:
                parameter.accumulate(part.grad)
                part.zero_grad()

        list(self._pool.map(add_up, self.model.parameters(), zip(*of_each, strict=True)))
        return sum(losses)

    def _check(self, loss):
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} at step {self.optimizer.t + 1}: try a smaller learning rate")

    def _clip(self):
        if self.clip is not None:
            clip_grad_norm(self.optimizer.parameters, self.clip)


def _split(part, n):
    """Cut an array into n shards of sentences; a tuple of arrays into n tuples."""
    if isinstance(part, tuple):
        return list(zip(*(_split(p, n) for p in part), strict=True))
    return array_module(part).array_split(part, n)
