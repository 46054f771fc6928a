"""The commands train, translate and info, called as the console script calls them."""

import configparser
import errno
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import transformer_np.cli.train
import transformer_np.data
import transformer_np.training
from transformer_np import load
from transformer_np.cli import main
from transformer_np.data import DateTask
from transformer_np.training import load_run
from transformer_np.training.run import VOCABULARIES

ROOT = pathlib.Path(__file__).parents[2]
TINY = ["--d-model", "16", "--heads", "2", "--layers", "1", "--d-ff", "16", "--batch-size", "8", "--threads", "1"]
FILES = ["attention.png", "config.json", "history.json", "loss.png", "training.safetensors", "weights.safetensors"]
FILES += VOCABULARIES


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    """Every test stands in an empty folder of its own, and its calendar is short."""
    monkeypatch.chdir(tmp_path)
    few = functools.partial(DateTask, n_train=200, n_validation=5, n_test=20)
    monkeypatch.setattr(transformer_np.data, "DateTask", few)
    return tmp_path


@pytest.fixture
def no_pictures(monkeypatch):
    """Drawing takes longer than the rest of a tiny training; two tests look at the pictures."""
    monkeypatch.setattr(transformer_np.cli.train, "draw", lambda *arguments: None)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A runs folder with one small run, en-ko, that the tests copy."""
    root = tmp_path_factory.mktemp("trained") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        few = functools.partial(DateTask, n_train=200, n_validation=5, n_test=20)
        patch.setattr(transformer_np.data, "DateTask", few)
        assert main(["train", "--steps", "2", *TINY, "--quiet", "--runs", str(root)]) == 0
    return root


@pytest.fixture
def runs(trained, workplace):
    """The same in the folder where the test stands."""
    return shutil.copytree(trained, workplace / "runs")


def one_line(text, beginning):
    """Whether `text` is one line, apart from argparse's usage, and begins so."""
    lines = text.splitlines()
    if lines and lines[0].startswith("usage: "):
        lines = lines[1:]
    return len(lines) == 1 and lines[0].startswith(beginning)


def test_train_says_what_it_does_and_saves_it(command, workplace):
    result = command("train", "--steps", 4, *TINY, "--dropout", 0.1, "--seed", 7)
    assert result.code == 0
    lines = result.out.splitlines()
    sizes = re.fullmatch(r"en to ko: 400 pairs to learn from, (\d+) and (\d+) tokens, ([\d,]+) parameters", lines[0])
    assert re.fullmatch(r"  for example  \w+, \w+ \d+, \d{4}  =  \d{4}년 \d+월 \d+일 .요일", lines[1])
    found = re.fullmatch(
        r"exact match: (\d+) of 20 unseen dates right in both formats \(([\d.]+) %\); (\d+) of 40 texts", lines[2]
    )
    assert float(found[2]) == round(100 * int(found[1]) / 20, 1)
    examples = lines[3:-2]
    assert len(examples) == 15  # five, of three lines each
    for source, answer, expected in zip(examples[::3], examples[1::3], examples[2::3], strict=True):
        assert re.fullmatch(r"  .*\d{4}", source)
        judgement, answer = re.fullmatch(r"    (right|WRONG)    (.*)", answer).groups()
        expected = re.fullmatch(r"    expected (.*일.*)", expected)[1]
        assert (judgement == "right") == (answer == expected)
    assert lines[-2].startswith("saved in runs/en-ko/ (model, loss.png, attention.png); ")
    assert re.fullmatch(r'next: transformer-np translate "[^"]+"', lines[-1])
    assert "4/4" in result.err  # the progress bar
    assert "tokens/s" in result.err

    folder = workplace / "runs" / "en-ko"
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    for name in ("loss.png", "attention.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    model, source, target, config = load_run(folder)
    assert [len(source.vocabulary), len(target.vocabulary)] == [int(sizes[1]), int(sizes[2])]
    assert model.n_parameters() == int(sizes[3].replace(",", ""))
    assert config["from"], config["to"] == ("en", "ko")
    assert config["training"] == {
        "steps": 4, "batch_size": 8, "lr": 0.003, "dropout": 0.1, "threads": 1, "seed": 7, "device": "cpu"
    }  # fmt: skip
    assert config["model"]["d_model"] == 16
    assert config["model"]["norm"] == "pre"
    history = json.loads((folder / "history.json").read_text(encoding="utf-8"))
    assert len(history["losses"]) == len(history["learning_rates"]) == 4
    assert history["test"] == {"dates": 20, "dates_right": int(found[1]), "texts": 40, "texts_right": int(found[3])}
    assert history["interrupted"] is False


def test_a_trained_translator_is_counted_right(command, workplace, no_pictures, monkeypatch):
    """The count and the examples, with answers that are known: all right but three texts of two dates."""

    def answers(model, source_tokenizer, target_tokenizer, texts, max_len):
        task = transformer_np.data.DateTask("en", "ko", seed=0)
        right = {pair.source: pair.target for pair in task.test}
        out = [right[text] for text in texts]
        out[3], out[12], out[13] = "X", "Y", "Z"
        assert max_len > max(map(len, task.ids(task.test)[1])) + 1  # room for a right answer and its end token
        return out

    monkeypatch.setattr(transformer_np.training, "translate", answers)
    result = command("train", "--steps", 1, *TINY, "--quiet")
    assert "exact match: 18 of 20 unseen dates right in both formats (90.0 %); 37 of 40 texts" in result.out
    assert result.out.count("    right    ") == 4
    assert result.out.count("    WRONG    ") == 1  # one mistake is always shown
    assert "    WRONG    X" in result.out
    history = json.loads((workplace / "runs" / "en-ko" / "history.json").read_text(encoding="utf-8"))
    assert history["test"] == {"dates": 20, "dates_right": 18, "texts": 40, "texts_right": 37}


def test_same_seed_same_numbers(command, workplace, no_pictures):
    for options in (["--seed", "3"], ["--seed", "3"], ["--seed", "4"]):
        arguments = ["train", "--steps", 3, *TINY, "--threads", 2, "--dropout", 0.2, "--quiet", *options]
        assert command(*arguments).code == 0
    one, same, other = ((workplace / "runs" / name) for name in ("en-ko", "en-ko-2", "en-ko-3"))
    weights = [load(folder / "weights.safetensors").state_dict() for folder in (one, same, other)]
    assert all(weights[1][name].tobytes() == value.tobytes() for name, value in weights[0].items())
    assert any(weights[2][name].tobytes() != value.tobytes() for name, value in weights[0].items())
    losses = [json.loads((folder / "history.json").read_text())["losses"] for folder in (one, same, other)]
    assert losses[0] == losses[1] != losses[2]


def test_a_name_that_is_taken(command, runs, no_pictures):
    before = {path: path.read_bytes() for path in runs.rglob("*.*")}
    result = command("train", "--steps", 1, *TINY, "--quiet", "--name", "en-ko", "--from", "de", "--to", "fr")
    assert result.code == 0
    assert "saved in runs/en-ko-2/" in result.out
    assert {path: path.read_bytes() for path in before} == before


def test_where_the_runs_are(command, workplace, no_pictures):
    result = command("train", "--steps", 1, *TINY, "--quiet", "--runs", "my runs", "--name", "first try")
    assert result.code == 0
    assert (workplace / "my runs" / "first try" / "weights.safetensors").is_file()
    assert "next: transformer-np translate --run 'my runs/first try' \"" in result.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--steps 0", "argument --steps: expected a whole number of at least 1, got '0'"),
        ("--steps ten", "argument --steps: expected a whole number of at least 1, got 'ten'"),
        ("--batch-size -4", "argument --batch-size: expected a whole number of at least 1, got '-4'"),
        ("--lr -0.1", "argument --lr: expected a number above 0, got '-0.1'"),
        ("--lr 0", "argument --lr: expected a number above 0, got '0'"),
        ("--lr nan", "argument --lr: expected a number above 0, got 'nan'"),
        ("--lr inf", "argument --lr: expected a number above 0, got 'inf'"),
        ("--dropout 1", "argument --dropout: expected a number from 0 up to, but not, 1, got '1'"),
        ("--dropout x", "argument --dropout: expected a number from 0 up to, but not, 1, got 'x'"),
        ("--threads 0", "argument --threads: expected a whole number of at least 1, got '0'"),
        ("--seed -1", "argument --seed: expected a whole number of at least 0, got '-1'"),
        ("--layers 1.5", "argument --layers: expected a whole number of at least 1, got '1.5'"),
        ("--norm batch", "argument --norm: invalid choice: 'batch'"),
    ],
)
def test_bad_numbers(command, workplace, arguments, message):
    result = command("train", *TINY, *arguments.split())
    assert result.code == 2
    assert one_line(result.err, f"transformer-np train: error: {message}")
    assert result.out == ""
    assert not list(workplace.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--heads 5", "--d-model 16 must be a multiple of --heads 5"),
        ("--from klingon", "unknown locale 'klingon'; did you mean "),
        ("--to kr", "unknown locale 'kr'; did you mean ko"),
        ("--name a/b", "a run's name must be a plain folder name, got 'a/b'"),
        ("--name=", "a run's name must be a plain folder name, got ''"),
        ("--name ..", "a run's name must be a plain folder name, got '..'"),
    ],
)
def test_what_cannot_be_done_leaves_nothing_behind(command, workplace, arguments, message):
    result = command("train", *TINY, *arguments.split())
    assert result.code == 1
    assert one_line(result.err, f"transformer-np train: {message}")
    assert result.out == ""
    assert not list(workplace.iterdir())


def test_a_gpu_that_is_not_there(command, workplace, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)  # as where it is not installed
    result = command("train", "--device", "gpu", *TINY)
    assert result.code == 1
    assert one_line(result.err, 'transformer-np train: "gpu" asked for, but there is no usable GPU here: install')
    assert not list(workplace.iterdir())


@pytest.mark.parametrize("root", ["blocked", "blocked/deeper"])
def test_a_file_where_the_runs_folder_should_be(command, workplace, root):
    (workplace / "blocked").write_text("a file")
    result = command("train", "--steps", 1, *TINY, "--runs", root)
    assert result.code == 1
    assert one_line(result.err, "transformer-np train: [Errno ")
    assert "blocked" in result.err
    assert (workplace / "blocked").read_text() == "a file"


def test_a_runs_folder_that_cannot_be_written(command, runs, monkeypatch):
    """Through the error itself: whoever is root may write everywhere."""

    def refuse(path, *args, **options):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(pathlib.Path, "mkdir", refuse)
    result = command("train", "--steps", 1, *TINY)
    assert result.code == 1
    assert one_line(result.err, "transformer-np train: [Errno 13] Permission denied: 'runs/en-ko'")


def test_a_disk_that_is_full_when_the_run_is_saved(command, runs, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    before = {path: path.read_bytes() for path in runs.rglob("*.*")}
    monkeypatch.setattr(pathlib.Path, "write_bytes", full)
    result = command("train", "--steps", 1, *TINY, "--quiet")
    assert result.code == 1
    assert one_line(result.err, "transformer-np train: [Errno 28] No space left on device: 'runs/en-ko-2/")
    assert [path.name for path in runs.iterdir()] == ["en-ko"]
    assert {path: path.read_bytes() for path in before} == before


def test_a_training_that_diverges_leaves_no_folder(command, workplace, monkeypatch):
    def diverge(*arguments, **options):
        raise FloatingPointError("the loss is nan at step 3: try a smaller learning rate")

    monkeypatch.setattr(transformer_np.training, "fit", diverge)
    result = command("train", "--steps", 5, *TINY)
    assert result.code == 1
    assert one_line(result.err, "transformer-np train: the loss is nan at step 3: try a smaller learning rate")
    assert not list((workplace / "runs").iterdir())


def interrupting(n_times, at_step):
    """A TrainStep during whose step number `at_step` Ctrl-C is pressed."""

    class Interrupted(transformer_np.training.TrainStep):
        def __call__(self, *batch):
            if self.optimizer.t + 1 == at_step:
                for _ in range(n_times):
                    os.kill(os.getpid(), signal.SIGINT)
            return super().__call__(*batch)

    return Interrupted


def test_ctrl_c_saves_what_there_is(command, workplace, monkeypatch):
    monkeypatch.setattr(transformer_np.training, "TrainStep", interrupting(1, at_step=3))
    result = command("train", "--steps", 1000, *TINY, "--quiet")
    assert result.code == 130
    assert result.err == (
        "interrupted after 3 of 1000 steps; saved in runs/en-ko/\nto go on: transformer-np train --resume runs/en-ko\n"
    )
    assert "exact match" not in result.out
    folder = workplace / "runs" / "en-ko"
    history = json.loads((folder / "history.json").read_text(encoding="utf-8"))
    assert history["interrupted"] is True
    assert len(history["losses"]) == 3
    assert command("translate", "May 1, 2000").code == 0  # and it can be used


def test_ctrl_c_twice_gives_up(command, workplace, monkeypatch):
    monkeypatch.setattr(transformer_np.training, "TrainStep", interrupting(2, at_step=2))
    result = command("train", "--steps", 1000, *TINY, "--quiet")
    assert result.code == 130
    assert result.err.strip() == "interrupted"
    assert not list((workplace / "runs").iterdir())


def test_translate_uses_the_last_run(command, runs):
    result = command("translate", "May 1, 2000", " July 14, 1989 ")
    assert result.code == 0
    assert result.err == ""
    assert len(result.out.splitlines()) == 2
    model, source, target, _ = load_run(runs / "en-ko")
    for text, line in zip(("May 1, 2000", "July 14, 1989"), result.out.split("\n"), strict=False):
        ids = transformer_np.greedy(model, np.array([source.encode(text)]))[0]
        assert line == target.decode(ids)
    assert command("translate", "--run", "runs/en-ko", "May 1, 2000").out == result.out.splitlines()[0] + "\n"


def test_translate_json(command, runs):
    plain = command("translate", "May 1, 2000", "May foo 1, bar")
    result = command("translate", "--json", "May 1, 2000", "May foo 1, bar")
    assert result.code == 0
    assert result.err == ""
    content = json.loads(result.out)
    assert content["run"] == "runs/en-ko"
    assert [row["source"] for row in content["translations"]] == ["May 1, 2000", "May foo 1, bar"]
    assert [row["unknown_tokens"] for row in content["translations"]] == [[], ["foo", "bar"]]
    assert [row["translation"] for row in content["translations"]] == plain.out.splitlines()


def test_unknown_words_are_noted(command, runs):
    result = command("translate", "Hello wurld 12")
    assert result.code == 0
    assert len(result.out.splitlines()) == 1  # the note is not on the output, which a script reads
    assert one_line(
        result.err,
        "note: the model never saw 'Hello', 'wurld' in training, so do not trust what it makes of 'Hello wurld 12'; "
        "it knows texts like '",
    )


@pytest.mark.parametrize("text", ["", "   "])
def test_an_empty_text(command, runs, text):
    result = command("translate", text)
    assert result.code == 1
    assert result.out == ""
    assert one_line(result.err, f"transformer-np translate: there is nothing to translate: the text {text!r} is empty")


def test_a_text_longer_than_the_model_takes(command, runs):
    result = command("translate", "May 1, 2000 " * 20)
    assert result.code == 1
    assert one_line(result.err, "transformer-np translate: SinusoidalPositions: length ")


def test_no_run_yet(command):
    result = command("translate", "May 1, 2000")
    assert result.code == 1
    assert one_line(result.err, "transformer-np translate: no finished run in runs/: train one first (transformer-np")
    result = command("translate", "--run", "runs/none", "May 1, 2000")
    assert result.code == 1
    assert one_line(result.err, "transformer-np translate: no run folder at runs/none")


@pytest.mark.parametrize("name", ["config.json", "weights.safetensors", *VOCABULARIES])
def test_a_damaged_run(command, runs, name):
    path = runs / "en-ko" / name
    path.write_bytes(path.read_bytes()[:-20])
    result = command("translate", "May 1, 2000")
    assert result.code == 1
    assert name in result.err
    assert one_line(result.err, "transformer-np translate: ")
    path.unlink()
    result = command("translate", "--run", "runs/en-ko", "May 1, 2000")
    assert result.code == 1
    assert one_line(result.err, f"transformer-np translate: the run folder runs/en-ko is not complete: it lacks {name}")


def test_a_run_whose_config_lacks_the_example(command, runs):
    (runs / "en-ko" / "config.json").write_text("{}")
    result = command("translate", "foo 1")
    assert result.code == 0
    assert one_line(result.err, "note: the model never saw 'foo' in training")


def test_info(command, runs):
    result = command("info", "--json")
    assert result.code == 0
    facts = json.loads(result.out)
    assert facts["transformer_np"] == transformer_np.__version__
    assert facts["numpy"] == np.__version__
    assert facts["runs"] == ["runs/en-ko"]
    assert isinstance(facts["gpu"], bool)
    plain = command("info")
    assert plain.code == 0
    shown = dict(line.split(maxsplit=1) for line in plain.out.splitlines())
    assert shown.keys() == facts.keys()
    assert shown["runs"] == "runs/en-ko"
    assert shown["gpu"] == ("yes" if facts["gpu"] else "no")
    assert "none" in command("info", "--runs", "elsewhere").out


@pytest.mark.parametrize("name", ["train", "translate", "info"])
def test_help_has_an_example_and_fits_a_terminal(command, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    result = command(name, "--help")
    assert result.code == 0
    assert f"example:\n  transformer-np {name}" in result.out
    assert max(map(len, result.out.splitlines())) <= 80
    assert name in command("--help").out


def test_no_command_shows_the_help(command):
    result = command()
    assert result.code == 2
    assert result.err == command("--help").out


def test_bad_usage(command):
    for arguments in (["trian"], ["translate"]):
        result = command(*arguments)
        assert result.code == 2
        assert result.out == ""
    assert command("--version").out == f"transformer_np {transformer_np.__version__}\n"


def test_a_console_that_lacks_letters(runs):
    """A console that cannot write Korean shows "?" instead of failing."""
    result = console_script("translate", "May 1, 2000", folder=runs.parent, PYTHONIOENCODING="ascii")
    assert result.returncode == 0
    assert result.stderr == ""
    assert result.stdout.isascii()


def console_script(*arguments, folder, **environment):
    """Run what pip would install as `transformer-np`, in a process of its own."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    scripts = dict(line.split(" = ") for line in setup["options.entry_points"]["console_scripts"].strip().splitlines())
    module, function = scripts["transformer-np"].split(":")
    code = f"import sys; from {module} import {function}; sys.exit({function}())"
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": path, **environment},
        capture_output=True,
        encoding="utf-8",
    )


def test_the_console_script_on_the_real_task(workplace):
    """All of it once, with nothing replaced: 17,500 dates, 1,000 unseen ones, the bar on stderr."""
    sizes = ["--steps", "2", "--d-model", "8", "--heads", "1", "--layers", "1", "--d-ff", "8", "--threads", "1"]
    result = console_script("train", "--to", "de", *sizes, folder=workplace)
    assert result.returncode == 0, result.stderr
    assert "en to de: 35,000 pairs to learn from" in result.stdout
    assert "of 1,000 unseen dates right in both formats" in result.stdout
    assert "2/2" in result.stderr
    assert "Traceback" not in result.stderr
    assert load(workplace / "runs" / "en-de" / "weights.safetensors").config["d_model"] == 8
    again = console_script("translate", "Sunday, November 29, 2026", folder=workplace)
    assert again.returncode == 0
    assert again.stderr == ""
