"""The training loop: batches through a training step, with a progress bar, until done or interrupted."""

import contextlib
import itertools
import shutil
import signal
import sys
import threading
import time
from dataclasses import dataclass, field

import numpy as np

from ..backend import module_named


@dataclass
class History:
    """Loss (nats a token) and learning rate of each step; in all: tokens, seconds, and whether it was interrupted.

    Where `fit` was told to count something else, such as images, `tokens` are those.
    """

    losses: list = field(default_factory=list)
    learning_rates: list = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def steps(self):
        """How many updates were made."""
        return len(self.losses)

    @property
    def tokens_per_second(self):
        """Source and target tokens, padding not counted, a second."""
        return self.tokens / self.seconds if self.seconds else 0.0


SAVE_EVERY = 60.0  # seconds


def fit(
    step,
    batches,
    n_steps,
    pad_id=0,
    device="numpy",
    progress=True,
    *,
    count=None,
    unit="tokens",
    history=None,
    save=None,
):
    """Run training steps over the batches, epoch after epoch, until there are `n_steps`; return the `History`.

    `step(*arrays)` is a `TrainStep`; `batches.epoch(number)` yields tuples of arrays, of which the first and the last
    are counted as tokens; or `count(*arrays)` says how many there are of what `unit` names. With the `history` of
    an earlier call, whose state the step has (`TrainStep.load_state_dict`), it goes on with the next batch and writes
    into that history. `save(history)` is called every minute, so that a power cut takes no more than that.
    Ctrl-C ends the training after the step it falls in and is no error: if that was not the last one, the history says
    `interrupted`. A second Ctrl-C raises KeyboardInterrupt at once.
    """

    def n_tokens(*arrays):
        return sum(int(np.count_nonzero(ids != pad_id)) for ids in (arrays[0], arrays[-1]))

    count = n_tokens if count is None else count
    history, xp = History() if history is None else history, module_named(device)
    start, stream = time.perf_counter() - history.seconds, _batches_after(history.steps, batches)
    saved = time.perf_counter()
    with _progress_bar(history.steps, n_steps, progress) as bar, _held_back_interrupt() as interrupted:
        while history.steps < n_steps and not interrupted():
            batch = next(stream)
            rate, loss = step.optimizer.learning_rate(step.optimizer.t + 1), step(*map(xp.asarray, batch))
            history.learning_rates.append(rate)
            history.losses.append(loss)
            history.tokens += count(*batch)
            history.seconds = time.perf_counter() - start
            bar.set_postfix_str(
                f"loss {history.losses[-1]:.4f}, {history.tokens_per_second:,.0f} {unit}/s", refresh=False
            )
            bar.update()
            if save is not None and time.perf_counter() - saved >= SAVE_EVERY:
                save(history)
                saved = time.perf_counter()
        history.interrupted = interrupted() and history.steps < n_steps
    return history


def _batches_after(n_steps, batches):
    """Yield the batches of all epochs, but for the first `n_steps`: of whole epochs none of them is made."""
    epoch, n_batches = divmod(n_steps, len(batches)) if n_steps else (0, 0)
    stream = itertools.chain.from_iterable(map(batches.epoch, itertools.count(epoch)))
    return itertools.islice(stream, n_batches, None)


def _progress_bar(n_done, n_steps, shown):
    """A bar as wide as the terminal. In a file or a pipe, where each refresh adds to the text, only one a second."""
    from tqdm import tqdm

    columns = shutil.get_terminal_size().columns  # 80 where the terminal does not know; tqdm would show nothing there
    seconds = 0.1 if sys.stderr.isatty() else 1.0
    return tqdm(initial=n_done, total=n_steps, unit=" steps", disable=not shown, ncols=columns, mininterval=seconds)


@contextlib.contextmanager
def _held_back_interrupt():
    """Yield a function that says whether Ctrl-C came; the first one does not break into a step, the second does."""
    came = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only there may signal handlers be set
        yield came.is_set
        return

    def first(signum, frame):
        came.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, first)
    try:
        yield came.is_set
    finally:
        signal.signal(signal.SIGINT, before)
