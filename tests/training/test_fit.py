"""The loop around the step: epochs, history, progress, and Ctrl-C."""

import io
import os
import signal
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.data import Batches
from transformer_np.training import History, fit


class RecordingStep:
    """Stands for a TrainStep: keeps the batches, and calls `on_step` with their number."""

    def __init__(self, on_step=lambda n: None):
        self.batches, self.on_step = [], on_step
        self.optimizer = SimpleNamespace(t=0, learning_rate=lambda step: 0.5 / step)

    def __call__(self, *batch):
        self.batches.append(batch)
        self.on_step(len(self.batches))
        self.optimizer.t += 1
        return 1.0 / len(self.batches)


def few_batches():
    """Five pairs in batches of two: three batches an epoch, the last of one pair."""
    return Batches([[4], [5, 6], [7], [8], [9, 9]], [[4], [5], [6, 6], [7], [8]], 2, seed=3)


def interrupt(signum=signal.SIGINT):
    os.kill(os.getpid(), signum)


def test_history_and_epochs():
    step, batches = RecordingStep(), few_batches()
    history = fit(step, batches, 7, progress=False)
    assert history.losses == [1 / n for n in range(1, 8)]
    assert history.learning_rates == [0.5 / n for n in range(1, 8)]
    assert history.steps == 7
    assert not history.interrupted
    expected = [batch for number in (0, 1, 2) for batch in batches.epoch(number)][:7]
    for got, batch in zip(step.batches, expected, strict=True):
        for array, want in zip(got, batch, strict=True):
            np.testing.assert_array_equal(array, want)
    n_tokens = sum(int((ids != 0).sum()) for src, _, tgt_out in expected for ids in (src, tgt_out))
    assert history.tokens == n_tokens
    assert history.tokens_per_second == n_tokens / history.seconds


def test_the_bar_shows_loss_speed_and_time_left(monkeypatch):
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    fit(RecordingStep(), few_batches(), 4)
    last = stderr.getvalue().split("\r")[-1]
    assert "100%" in last
    assert "4/4" in last
    assert "loss 0.2500" in last
    assert "tokens/s" in last
    assert "00:00<" in last  # time gone < time left
    assert "steps/s" in last


def test_no_bar(capsys):
    fit(RecordingStep(), few_batches(), 2, progress=False)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_the_first_interrupt_finishes_its_step():
    before = signal.getsignal(signal.SIGINT)
    step = RecordingStep(lambda n: interrupt() if n == 3 else None)
    history = fit(step, few_batches(), 100, progress=False)
    assert history.interrupted
    assert history.steps == len(step.batches) == step.optimizer.t == 3
    assert len(history.losses) == len(history.learning_rates) == 3
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_in_the_last_step_interrupts_nothing():
    history = fit(RecordingStep(lambda n: interrupt() if n == 3 else None), few_batches(), 3, progress=False)
    assert history.steps == 3
    assert not history.interrupted


@pytest.mark.parametrize("n_before", [0, 1, 3, 5])
def test_going_on_with_the_next_batch(n_before):
    """Three batches an epoch: the stop is at its beginning, in its middle, at its end, or in the next one."""
    step, batches = RecordingStep(), few_batches()
    history = fit(step, batches, n_before, progress=False)
    seconds, tokens = history.seconds, history.tokens
    assert fit(step, batches, 8, progress=False, history=history) is history
    assert history.losses == [1 / n for n in range(1, 9)]
    assert history.learning_rates == [0.5 / n for n in range(1, 9)]
    assert history.seconds > seconds
    assert history.tokens > tokens
    expected = [batch for number in (0, 1, 2) for batch in batches.epoch(number)][:8]
    for got, batch in zip(step.batches, expected, strict=True):
        np.testing.assert_array_equal(got[0], batch[0])


def test_nothing_left_to_do():
    step, batches = RecordingStep(), few_batches()
    history = fit(step, batches, 3, progress=False)
    assert fit(step, batches, 3, progress=False, history=history).steps == len(step.batches) == 3


def test_the_bar_goes_on_too(monkeypatch):
    step, batches, stderr = RecordingStep(), few_batches(), io.StringIO()
    history = fit(step, batches, 3, progress=False)
    monkeypatch.setattr(sys, "stderr", stderr)
    fit(step, batches, 4, history=history)
    shown = stderr.getvalue().split("\r")
    assert "3/4" in shown[1]
    assert "4/4" in shown[-1]


def test_a_step_that_fails_is_not_in_the_history():
    def fail(n):
        if n == 2:
            raise FloatingPointError("the loss is nan at step 2")

    history = History()
    with pytest.raises(FloatingPointError):
        fit(RecordingStep(fail), few_batches(), 3, progress=False, history=history)
    assert (history.losses, history.learning_rates) == ([1.0], [0.5])


def test_the_second_interrupt_raises():
    before = signal.getsignal(signal.SIGINT)

    def twice(n):
        if n == 2:
            interrupt()
            interrupt()

    step = RecordingStep(twice)
    with pytest.raises(KeyboardInterrupt):
        fit(step, few_batches(), 100, progress=False)
    assert len(step.batches) == 2
    assert step.optimizer.t == 1  # it broke into the second step
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_gives_ctrl_c_back():
    before = signal.getsignal(signal.SIGINT)

    def fail(n):
        raise FloatingPointError("the loss is nan at step 1")

    with pytest.raises(FloatingPointError, match="the loss is nan at step 1"):
        fit(RecordingStep(fail), few_batches(), 3, progress=False)
    assert signal.getsignal(signal.SIGINT) is before


def test_outside_the_main_thread():
    """Only the main thread may set signal handlers; elsewhere the loop runs without."""
    histories = []
    thread = threading.Thread(target=lambda: histories.append(fit(RecordingStep(), few_batches(), 3, progress=False)))
    thread.start()
    thread.join(30)
    assert histories[0].steps == 3


def test_a_device_that_is_not_there():
    step = RecordingStep()
    with pytest.raises(ValueError, match="device: got 'tpu'"):
        fit(step, few_batches(), 3, device="tpu", progress=False)
    assert not step.batches


def test_a_real_model_learns_to_copy():
    rng = np.random.default_rng(0)
    sequences = [rng.integers(4, 10, rng.integers(1, 4)).tolist() for _ in range(200)]
    model = tnp.Transformer(10, 10, 24, 2, 1, 1, 48, dropout=0.0, max_len=8, norm="pre", seed=0)
    schedule = tnp.LinearSchedule(1e-2, 20, 150)
    step = tnp.TrainStep(model, tnp.CrossEntropy(ignore_index=0), tnp.Adam(model.parameters(), lr=schedule), clip=1.0)
    history = fit(step, Batches(sequences, sequences, 32), 150, progress=False)
    assert history.losses[0] > 2
    assert np.mean(history.losses[-10:]) < 0.1
    assert history.learning_rates == [schedule(n) for n in range(1, 151)]
    unseen = np.array([[9, 4, 9], [5, 7, 0]])
    np.testing.assert_array_equal(tnp.greedy(model, unseen), [[9, 4, 9, 2], [5, 7, 2, 0]])
