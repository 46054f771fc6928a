"""transformer-np train --task text, digits and reverse: what is printed is what the saved model does."""

import functools
import json
import math
import os
import re
import signal
import sys

import numpy as np
import pytest

import transformer_np as tnp
import transformer_np.cli.train
import transformer_np.data
import transformer_np.training
from transformer_np.data import DigitsTask, ReverseTask, TextTask, Vocabulary
from transformer_np.training import load_run, load_text_run

TINY = ["--d-model", "8", "--heads", "2", "--layers", "1", "--d-ff", "8", "--threads", "1", "--quiet"]
COMMON = {"attention.png", "config.json", "history.json", "loss.png", "training.safetensors", "weights.safetensors"}
TEXT = "".join(f"Line {i}: the cat sat on mat number {i * 7 % 31}.\n" for i in range(60))


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    """Every test stands in an empty folder of its own, beside a small text, and reverses few sequences."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.txt").write_bytes(TEXT.encode())
    monkeypatch.setattr(transformer_np.data, "ReverseTask", functools.partial(ReverseTask, n_train=200, n_test=20))
    return tmp_path


@pytest.fixture
def no_pictures(monkeypatch):
    """Drawing takes longer than the rest of a tiny training."""
    monkeypatch.setattr(transformer_np.cli.train, "draw", lambda *arguments: None)


def small_text(*options):
    return ["train", "--task", "text", "--file", "small.txt", "--length", 8, "--batch-size", 4, *TINY, *options]


def check_folder(folder, task, vocabularies, steps):
    """Compare what is in the run folder with what was asked for; return its history."""
    assert {path.name for path in folder.iterdir()} == COMMON | vocabularies
    for name in ("loss.png", "attention.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["task"] == task
    assert config["model"]["d_model"] == 8
    assert config["training"]["steps"] == steps
    history = json.loads((folder / "history.json").read_text(encoding="utf-8"))
    assert len(history["losses"]) == len(history["learning_rates"]) == steps
    return history


def test_text(command, workplace):
    result = command(*small_text("--steps", 3))
    assert result.code == 0, result.err
    history = check_folder(workplace / "runs" / "text", "text", {"vocabulary.json"}, 3)
    model, tokenizer, config = load_text_run("runs/text")
    assert (config["text"], model.config["max_len"]) == ("small.txt", 8)

    # The loss once more, in float64 and by its definition.
    ids, targets = TextTask(TEXT, 8).validation_stretches()
    logits = model.eval()(ids).astype("float64")
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    loss = -np.take_along_axis(log_p, targets[..., None], -1).mean()
    unigram = TextTask(TEXT, 8).unigram_loss()
    assert history["test"]["validation_loss"] == pytest.approx(loss, rel=1e-5)
    lines = result.out.splitlines()
    n_train = len(TEXT) - len(TEXT) // 10
    assert lines[0] == (
        f"text (small.txt): {n_train:,} characters to learn from, {len(TEXT) // 10} held out, {len(tokenizer)} tokens, "
        f"{model.n_parameters():,} parameters"
    )
    assert lines[1] == (
        f"validation loss: {history['test']['validation_loss']:.3f} nats a character "
        f"({history['test']['validation_loss'] / math.log(2):.3f} bits); "
        f"by how frequent each is: {unigram:.3f} ({unigram / math.log(2):.3f} bits)"
    )
    sample = history["test"]["sample"]
    assert len(sample) == 8 + 300
    assert sample.startswith(TEXT[n_train : n_train + 8])
    assert lines[2:-2] == ["it writes:", *(f"  | {line}" for line in sample.splitlines())]
    assert lines[-2].startswith("saved in runs/text/ (model, loss.png, attention.png); ")
    assert lines[-1] == 'next: transformer-np generate "The "'


def test_digits(command, workplace):
    pytest.importorskip("sklearn")
    result = command("train", "--task", "digits", "--steps", 3, "--seed", 5, *TINY)
    assert result.code == 0, result.err
    history = check_folder(workplace / "runs" / "digits", "digits", set(), 3)
    task, model = DigitsTask(seed=5), tnp.load("runs/digits/weights.safetensors").eval()
    n_right = int((model(task.test_images).argmax(-1) == task.test_labels).sum())
    assert history["test"] == {"images": 359, "images_right": n_right}
    lines = result.out.splitlines()
    assert lines[0].startswith("digits: 1,438 images of 8 by 8 to learn from, 359 held out, ")
    assert lines[1] == f"accuracy: {n_right} of 359 held-out images right ({100 * n_right / 359:.1f} %)"
    assert re.fullmatch(r"  taken for another digit: (\d as \d, ){7}\d as \d and \d+ more", lines[2])
    assert lines[-1] == "next: transformer-np step --task digits 0"


def test_reverse(command, workplace):
    result = command("train", "--task", "reverse", "--length", 5, "--steps", 3, *TINY)
    assert result.code == 0, result.err
    names = {"source_vocabulary.json", "target_vocabulary.json"}
    history = check_folder(workplace / "runs" / "reverse", "reverse", names, 3)
    model, source, target, _ = load_run("runs/reverse")
    test = ReverseTask(5, n_train=200, n_test=20).test
    answers = [target.decode(tnp.greedy(model, np.array([source.encode(text)]), 7)[0]) for text in test]
    n_right = sum(answer == text[::-1] for answer, text in zip(answers, test, strict=True))
    assert history["test"] == {"texts": 20, "texts_right": n_right}
    lines = result.out.splitlines()
    assert lines[0].startswith("reverse: 200 sequences of 3 to 5 letters to learn from, ")
    example = re.fullmatch(r"  for example  ([a-z]+)  =  ([a-z]+)", lines[1])
    assert example[1] == example[2][::-1]
    assert lines[2] == f"exact match: {n_right} of 20 unseen sequences right ({100 * n_right / 20:.1f} %)"
    assert len(lines[3:-2]) == 5
    assert lines[-1] == f"next: transformer-np translate {test[0]}"
    assert command("translate", "--run", "runs/reverse", "abc", "a1-").err.startswith(
        "note: the model never saw '1', '-' in training, so do not trust what it makes of 'a1-'; it knows texts like "
    )


def test_a_text_that_repeats_is_learned(command, no_pictures):
    """Frequencies know nothing of what comes next; with one letter to look at, all is known."""
    with open("abc.txt", "w", encoding="utf-8") as file:
        file.write("abc" * 200)
    arguments = ["--task", "text", "--file", "abc.txt", "--length", 8, "--steps", 200, "--lr", 0.02, *TINY]
    arguments += ["--d-model", 16, "--d-ff", 32]
    assert command("train", *arguments).code == 0
    with open("runs/text/history.json", encoding="utf-8") as file:
        test = json.load(file)["test"]
    # Of 540 characters each of the three is a third; one more is counted of every token, padding and such too.
    n_tokens = len(Vocabulary.load("runs/text/vocabulary.json"))
    assert test["unigram_loss"] == pytest.approx(math.log((540 + n_tokens) / (180 + 1)), rel=1e-12)
    assert test["validation_loss"] < 0.1
    assert "abcabcabc" in test["sample"]


def test_the_bar_counts_what_the_task_has(command, no_pictures):
    arguments = [argument for argument in small_text("--steps", 2) if argument != "--quiet"]
    result = command(*arguments)
    assert "2/2" in result.err
    assert "characters/s" in result.err
    with open("runs/text/history.json", encoding="utf-8") as file:
        assert json.load(file)["characters_per_second"] > 0


def test_same_seed_same_text(command, workplace, no_pictures):
    for seed in (1, 1, 2):
        assert command(*small_text("--steps", 2, "--seed", seed, "--dropout", 0.2)).code == 0
    one, same, other = (
        json.loads((workplace / "runs" / name / "history.json").read_text(encoding="utf-8"))
        for name in ("text", "text-2", "text-3")
    )
    assert one["losses"] == same["losses"] != other["losses"]
    assert one["test"] == same["test"] != other["test"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--file small.txt", "--file is an option of the task text, not of dates"),
        ("--task text --from en", "--from is an option of the task dates, not of text"),
        ("--task reverse --to ko", "--to is an option of the task dates, not of reverse"),
        ("--task digits --length 4", "--length is an option of the task text and reverse, not of digits"),
        ("--task digits --norm post", "--norm is an option of the task dates and reverse, not of digits"),
        ("--task poems", "argument --task: invalid choice: 'poems'"),
    ],
)
def test_options_of_another_task(command, workplace, arguments, message):
    result = command("train", *arguments.split())
    assert result.code == 2
    assert result.err.splitlines()[-1].startswith(f"transformer-np train: error: {message}")
    assert not (workplace / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--task text --file none.txt", "[Errno 2] No such file or directory: 'none.txt'"),
        ("--task text --file bad.txt", "bad.txt is no UTF-8 text: "),
        ("--task text --file small.txt --length 500", "TextTask: the text has "),
        ("--task text --heads 5", "--d-model 64 must be a multiple of --heads 5"),
        ("--task reverse --length 2", "ReverseTask: got longest 2, expected 3 or more"),
    ],
)
def test_what_cannot_be_done_leaves_nothing_behind(command, workplace, arguments, message):
    (workplace / "bad.txt").write_bytes(b"\xff\xfe\xff" * 1000)
    result = command("train", *arguments.split())
    assert result.code == 1
    assert result.err.startswith(f"transformer-np train: {message}")
    assert len(result.err.splitlines()) == 1
    assert not (workplace / "runs").exists()


def test_without_scikit_learn(command, workplace, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    result = command("train", "--task", "digits", *TINY)
    assert result.code == 1
    assert result.err == "transformer-np train: the task digits needs scikit-learn: pip install scikit-learn\n"
    assert not (workplace / "runs").exists()


def test_ctrl_c_saves_a_text_run_that_can_be_used(command, workplace, monkeypatch):
    class Interrupted(transformer_np.training.TrainStep):
        def __call__(self, *batch):
            if self.optimizer.t + 1 == 2:
                os.kill(os.getpid(), signal.SIGINT)
            return super().__call__(*batch)

    monkeypatch.setattr(transformer_np.training, "TrainStep", Interrupted)
    result = command(*small_text("--steps", 1000))
    assert result.code == 130
    assert result.err == (
        "interrupted after 2 of 1000 steps; saved in runs/text/\nto go on: transformer-np train --resume runs/text\n"
    )
    assert "validation loss" not in result.out
    assert command("generate", "--max-len", 5, "Line").code == 0


def test_each_command_takes_the_runs_of_its_tasks(command, no_pictures):
    assert command("train", "--task", "reverse", "--length", 4, "--steps", 1, *TINY).code == 0
    assert command("generate", "x").err == (
        "transformer-np generate: no finished run of the task text in runs/: train one first "
        "(transformer-np train --task text)\n"
    )
    assert command(*small_text("--steps", 1)).code == 0
    assert command("translate", "abc").code == 0  # of the run before the last
    assert command("translate", "--run", "runs/text", "abc").err == (
        "transformer-np translate: runs/text is a run of the task text, expected dates or reverse: "
        "use transformer-np generate --run runs/text\n"
    )
    assert command("generate", "--run", "runs/reverse", "abc").err == (
        "transformer-np generate: runs/reverse is a run of the task reverse, expected text: "
        "use transformer-np translate --run runs/reverse\n"
    )


def test_a_run_of_digits_says_how_to_use_it(command, workplace):
    (workplace / "runs" / "digits").mkdir(parents=True)
    (workplace / "runs" / "digits" / "config.json").write_text('{"task": "digits"}', encoding="utf-8")
    for name in ("translate", "generate"):
        result = command(name, "--run", "runs/digits", "abc")
        assert result.code == 1
        assert 'in Python, transformer_np.load("runs/digits/weights.safetensors") gives its model' in result.err


@pytest.mark.slow
@pytest.mark.parametrize("task", ["text", "digits", "reverse"])
def test_the_defaults_learn(command, workplace, task, monkeypatch, no_pictures):
    """What the README may promise: half the loss of frequencies, 97 % of the digits, 99 % of the reversals."""
    monkeypatch.undo()
    monkeypatch.chdir(workplace)
    assert command("train", "--task", task, "--quiet").code == 0
    test = json.loads((workplace / "runs" / task / "history.json").read_text(encoding="utf-8"))["test"]
    if task == "text":
        assert test["validation_loss"] < 0.6 * test["unigram_loss"]
    elif task == "digits":
        assert test["images_right"] >= 0.97 * test["images"]
    else:
        assert test["texts_right"] >= 0.99 * test["texts"]
