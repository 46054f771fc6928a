"""transformer-np train --resume: a run goes on as if it had never stopped, and whatever happens, nothing is lost."""

import errno
import functools
import json
import os
import pathlib
import signal
import sys

import pytest
from safetensors import safe_open

import transformer_np.cli.train
import transformer_np.data
import transformer_np.training
from transformer_np import LinearSchedule
from transformer_np.data import DateTask, ReverseTask
from transformer_np.training import read_checkpoint, save_checkpoint

TINY = ["--d-model", 8, "--heads", 2, "--layers", 1, "--d-ff", 8, "--batch-size", 5, "--quiet"]
TASKS = {
    "dates": ["--dropout", 0.2, "--threads", 2, "--seed", 3, "--norm", "post", "--to", "de"],
    "text": ["--task", "text", "--file", "small.txt", "--length", 8, "--dropout", 0.1, "--threads", 1],
    "digits": ["--task", "digits", "--lr", 0.001, "--threads", 2],
    "reverse": ["--task", "reverse", "--length", 5, "--dropout", 0.3],
}
NAMES = {"dates": "en-de", "text": "text", "digits": "digits", "reverse": "reverse"}
STATE = "training.safetensors"


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    """Every test stands in an empty folder of its own; there is little data, and nothing is drawn."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.txt").write_bytes("".join(f"Line {i}: {i * 7 % 31} mats.\n" for i in range(60)).encode())
    few = functools.partial(DateTask, n_train=20, n_validation=5, n_test=5)
    monkeypatch.setattr(transformer_np.data, "DateTask", few)
    monkeypatch.setattr(transformer_np.data, "ReverseTask", functools.partial(ReverseTask, n_train=17, n_test=5))
    monkeypatch.setattr(transformer_np.cli.train, "draw", lambda *arguments: None)
    return tmp_path


@pytest.fixture
def interrupted(command, monkeypatch):
    """Run a command in whose step number `at_step` Ctrl-C is pressed, `n_times`."""

    def run(*arguments, at_step, n_times=1):
        class Interrupted(transformer_np.training.TrainStep):
            n_steps = 0

            def __call__(self, *batch):
                self.n_steps += 1
                if self.n_steps == at_step:
                    for _ in range(n_times):
                        os.kill(os.getpid(), signal.SIGINT)
                return super().__call__(*batch)

        with monkeypatch.context() as patch:
            patch.setattr(transformer_np.training, "TrainStep", Interrupted)
            return command(*arguments)

    return run


@pytest.fixture
def stopped(interrupted):
    """A run of the task text, runs/text, that was stopped after 3 of 8 steps."""
    result = interrupted("train", "--steps", 8, *TINY, *TASKS["text"], at_step=3)
    assert result.code == 130, result.err
    return pathlib.Path("runs/text")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def history_of(folder):
    """All of history.json but the speed."""
    content = json.loads((folder / "history.json").read_text(encoding="utf-8"))
    return {name: value for name, value in content.items() if not name.endswith("_per_second")}


def state_of(folder):
    with safe_open(folder / STATE, framework="numpy") as file:
        return {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118 (not a dict)


@pytest.mark.parametrize("task", TASKS)
def test_a_run_that_was_stopped_twice_is_one_that_was_not(command, interrupted, task):
    """Four batches an epoch in three of the tasks, so the eleven steps end and begin within one."""
    if task == "digits":
        pytest.importorskip("sklearn")
    arguments = ["train", "--steps", 11, *TINY, *TASKS[task]]
    whole, parts = pathlib.Path("runs", "whole"), pathlib.Path("runs", NAMES[task])
    assert command(*arguments, "--name", "whole").code == 0
    result = interrupted(*arguments, at_step=3)
    for n_steps in (3, 7):
        assert result.code == 130
        assert result.err == (
            f"interrupted after {n_steps} of 11 steps; saved in {parts}/\nto go on: transformer-np train --resume "
            f"{parts}\n"
        )
        assert history_of(parts)["interrupted"] is True
        assert len(history_of(parts)["losses"]) == n_steps
        if n_steps == 3:
            result = interrupted("train", "--resume", parts, "--quiet", at_step=4)
    result = command("train", "--resume", parts, "--quiet")
    assert result.code == 0, result.err
    assert "going on after 7 of 11 steps\n" in result.out
    assert f"saved in {parts}/ (model, " in result.out
    assert history_of(parts) == history_of(whole)
    assert state_of(parts) == state_of(whole)
    one, other = contents(parts), contents(whole)
    assert one.keys() == other.keys()
    assert all(one[name] == other[name] for name in one.keys() - {"history.json", STATE})
    assert sorted(path.name for path in parts.parent.iterdir()) == sorted([parts.name, "whole"])


def test_a_training_that_breaks_off_goes_on_from_what_was_saved_last(command, monkeypatch):
    """Saved after each step here, instead of every minute; the fifth step fails."""
    options = ["train", "--steps", 7, *TINY, *TASKS["reverse"]]

    class Failing(transformer_np.training.TrainStep):
        def __call__(self, *batch):
            if self.optimizer.t == 4:
                raise MemoryError
            return super().__call__(*batch)

    with monkeypatch.context() as patch:
        patch.setattr(transformer_np.training.loop, "SAVE_EVERY", 0.0)
        patch.setattr(transformer_np.training, "TrainStep", Failing)
        with pytest.raises(MemoryError):
            command(*options)
    broken_off = pathlib.Path("runs/reverse")
    assert [path.name for path in broken_off.iterdir()] == [STATE]
    result = command("train", "--resume", broken_off, "--quiet")
    assert result.code == 0, result.err
    assert "going on after 4 of 7 steps\n" in result.out
    assert command(*options, "--name", "whole").code == 0
    assert history_of(broken_off) == history_of(pathlib.Path("runs/whole"))
    assert state_of(broken_off) == state_of(pathlib.Path("runs/whole"))


def test_beyond_the_end(command):
    """The rate falls towards the new end; what was, stays."""
    assert command("train", "--steps", 4, "--lr", 0.01, *TINY, *TASKS["reverse"]).code == 0
    folder = pathlib.Path("runs/reverse")
    before = history_of(folder)
    result = command("train", "--resume", folder, "--steps", 9, "--quiet")
    assert result.code == 0, result.err
    assert "going on after 4 of 9 steps\n" in result.out
    after, schedule = history_of(folder), LinearSchedule(0.01, 1, 9)
    assert after["losses"][:4] == before["losses"]
    assert after["learning_rates"] == before["learning_rates"] + [schedule(step) for step in range(5, 10)]
    assert json.loads((folder / "config.json").read_text())["training"]["steps"] == 9
    assert [path.name for path in folder.parent.iterdir()] == ["reverse"]
    for options in ((), ("--steps", 9), ("--steps", 2)):
        result = command("train", "--resume", folder, *options)
        assert result.code == 1
        assert result.err == (
            "transformer-np train: runs/reverse has made 9 steps: to go on, give --steps a larger number; "
            "it counts from the beginning\n"
        )


def test_on_another_device(command, stopped, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)  # as where it is not installed
    before = contents(stopped)
    result = command("train", "--resume", stopped, "--device", "gpu")
    assert result.code == 1
    assert result.err.startswith('transformer-np train: "gpu" asked for, but there is no usable GPU here')
    assert contents(stopped) == before
    assert command("train", "--resume", stopped, "--device", "cpu", "--quiet").code == 0


def test_the_folder_may_be_anywhere(command, interrupted):
    result = interrupted("train", "--steps", 5, *TINY, *TASKS["reverse"], "--runs", "my runs", at_step=2)
    assert result.err.endswith("to go on: transformer-np train --resume 'my runs/reverse'\n")
    pathlib.Path("my runs/reverse").rename("elsewhere")
    result = command("train", "--resume", "elsewhere/", "--quiet")
    assert result.code == 0, result.err
    assert "next: transformer-np translate --run elsewhere " in result.out


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--lr 0.1", "--lr"),
        ("--seed 0", "--seed"),
        ("--task text", "--task"),
        ("--from en --d-model 8 --threads 1", "--threads, --d-model, --from"),
        ("--name other --runs runs --device cpu --steps 9", "--runs, --name"),
    ],
)
def test_the_run_keeps_its_options(command, stopped, options, named):
    before = contents(stopped)
    result = command("train", "--resume", stopped, *options.split())
    assert result.code == 2
    message = f"transformer-np train: error: with --resume the run keeps its options: leave out {named}"
    assert result.err.splitlines()[-1] == message
    assert contents(stopped) == before


def refused(command, folder, message):
    before = contents(folder) if folder.is_dir() else None
    result = command("train", "--resume", folder)
    assert result.code == 1
    assert result.out == ""
    assert len(result.err.splitlines()) == 1
    assert result.err.startswith(f"transformer-np train: {message}")
    assert folder.is_dir() == (before is not None)
    assert before is None or contents(folder) == before


def test_runs_that_cannot_go_on(command, stopped):
    refused(command, pathlib.Path("runs/none"), "no run folder at runs/none")
    refused(command, pathlib.Path("small.txt"), "no run folder at small.txt")
    content = (stopped / STATE).read_bytes()
    for damaged in (content[:-9], b"", (stopped / "weights.safetensors").read_bytes()):
        (stopped / STATE).write_bytes(damaged)
        refused(command, stopped, "runs/text/training.safetensors is damaged or is no checkpoint of transformer_np: ")
    (stopped / STATE).unlink()
    message = "the training of runs/text cannot go on: there is no training.safetensors, which runs of older versions "
    refused(command, stopped, message)


def test_a_checkpoint_of_another_program(command, stopped):
    model = transformer_np.load(stopped / "weights.safetensors")
    step = transformer_np.TrainStep(model, transformer_np.CrossEntropy(), transformer_np.SGD(model.parameters(), 0.1))
    for about in (None, {}, {"options": {"task": "poems"}, "data": 1}, {"options": {"task": "text"}, "data": 1}):
        save_checkpoint(stopped / STATE, step, about=about)
        refused(command, stopped, "the training in runs/text was not begun by transformer-np train")


def test_data_that_has_changed(command, stopped):
    file = pathlib.Path("small.txt")
    text = file.read_bytes()
    file.write_bytes(text.replace(b"Line 3", b"Line 4"))
    refused(command, stopped, "the data that runs/text was trained on has changed: another file, or another version")
    file.unlink()
    refused(command, stopped, "[Errno 2] No such file or directory: 'small.txt'")
    file.write_bytes(text)
    assert command("train", "--resume", stopped, "--quiet").code == 0


def test_a_training_that_fails_leaves_the_run_as_it_was(command, stopped, interrupted, monkeypatch):
    before = contents(stopped)
    result = interrupted("train", "--resume", stopped, "--quiet", at_step=2, n_times=2)
    assert (result.code, result.err.strip()) == (130, "interrupted")
    assert contents(stopped) == before

    def diverge(*arguments, **options):
        raise FloatingPointError("the loss is nan at step 5: try a smaller learning rate")

    with monkeypatch.context() as patch:
        patch.setattr(transformer_np.training, "fit", diverge)
        assert command("train", "--resume", stopped, "--quiet").code == 1
    assert contents(stopped) == before


class BreaksOff:
    """Stands for `Path.write_bytes` and `write_text`: some files come through, of the next one half, then `error`."""

    def __init__(self, monkeypatch, n_files, error):
        self.n_left, self.error, self.write = n_files, error, pathlib.Path.write_bytes
        monkeypatch.setattr(pathlib.Path, "write_bytes", lambda path, content: self.write_some(path, content))
        monkeypatch.setattr(pathlib.Path, "write_text", lambda path, text, **_: self.write_some(path, text.encode()))

    def write_some(self, path, content):
        if self.n_left == 0:
            self.write(path, content[: len(content) // 2])
            raise self.error
        self.n_left -= 1
        self.write(path, content)


ERRORS = {1: OSError(errno.ENOSPC, "No space left on device"), 130: KeyboardInterrupt()}


@pytest.mark.parametrize("n_files", range(6))  # state, vocabulary, config, history, weights; history with the results
@pytest.mark.parametrize("code", ERRORS)
def test_a_save_that_breaks_off_loses_nothing(command, stopped, monkeypatch, n_files, code):
    """Wherever it does: the run can go on from where it stood or from where it stands, and its model can be used."""
    before = contents(stopped)
    with monkeypatch.context() as patch:
        BreaksOff(patch, n_files, ERRORS[code])
        assert command("train", "--resume", stopped, "--quiet").code == code
    after = contents(stopped)
    assert after.keys() == before.keys()
    assert sum(after[name] != before[name] for name in after) == [0, 1, 1, 1, 2, 3][n_files]  # two stay as they are
    n_steps = 3 if n_files == 0 else 8
    assert read_checkpoint(stopped / STATE)[1].steps == n_steps
    assert command("generate", "--max-len", 3, "Line").code == 0
    result = command("train", "--resume", stopped, "--steps", 10, "--quiet")
    assert result.code == 0, result.err
    assert f"going on after {n_steps} of 10 steps" in result.out
    assert len(history_of(stopped)["losses"]) == 10


def test_a_new_run_whose_save_breaks_off_after_its_state_can_go_on(command, monkeypatch):
    with monkeypatch.context() as patch:
        BreaksOff(patch, 1, ERRORS[1])
        assert command("train", "--steps", 3, *TINY, *TASKS["reverse"]).code == 1
    assert [path.name for path in pathlib.Path("runs/reverse").iterdir()] == [STATE]
    assert command("train", "--resume", "runs/reverse", "--steps", 5, "--quiet").code == 0
    assert command("translate", "abc").code == 0


def test_a_machine_with_other_cores(command, stopped, monkeypatch):
    """The threads are those of the run, whatever the machine has now: with others the sums would round differently."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    assert command("train", "--resume", stopped, "--quiet").code == 0
    assert json.loads((stopped / "config.json").read_text())["training"]["threads"] == 1
