"""`transformer-np gradcheck`, called as the command line calls it."""

import argparse
import json
import os
import subprocess
import sys
import threading
import time

import pytest

from transformer_np.cli import gradcheck as command

GOOD = """
import numpy as np

class Linear:
    def __init__(self, n_in, n_out):
        rng = np.random.default_rng(0)
        self.W, self.b = rng.normal(size=(n_in, n_out)), np.zeros(n_out)
    def forward(self, x):
        self.x = x
        return x @ self.W + self.b
    def backward(self, dy):
        x, d = self.x.reshape(-1, self.W.shape[0]), dy.reshape(-1, self.W.shape[1])
        self.dW, self.db = x.T @ d, d.sum(0)
        return dy @ self.W.T

def square_forward(x):
    return x * x, x

def square_backward(dy, x):
    return 2 * x * dy
"""
UNCLEAR = GOOD.replace("n_in", "this").replace("n_out", "that")
BAD = GOOD.replace("d.sum(0)", "d.mean(0)")


def call(*words):
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    args = parser.parse_args(["gradcheck", *map(str, words)])
    return args.run(args)


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(GOOD, encoding="utf-8")
    return path


@pytest.fixture
def bad(tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text(BAD, encoding="utf-8")
    return path


def test_a_class_in_a_file(good, bad, capsys):
    assert call(f"{good}:Linear") == 0
    assert "PASS  Linear" in capsys.readouterr().out
    assert call(f"{bad}:Linear") == 1
    assert "the gradient of b is wrong" in capsys.readouterr().out


def test_a_whole_file(good, capsys):
    assert call(good) == 0
    out = capsys.readouterr().out
    assert "PASS  Linear" in out
    assert "PASS  square" in out
    assert "2 of 2 pass" in out


UNUSUAL = """
import numpy as np

class Called:  # __call__ for forward
    def __call__(self, x):
        self.y = np.tanh(x)
        return self.y
    def backward(self, dy):
        return dy * (1 - self.y ** 2)

class MeanPool:  # a mask that it cannot do without
    def forward(self, x, mask):
        self.w = (mask / mask.sum(1, keepdims=True))[..., None]
        return (x * self.w).sum(1)
    def backward(self, dy):
        return dy[:, None] * self.w, None

class Cut:  # lengths
    def forward(self, x, lengths):
        self.keep = (np.arange(x.shape[1]) < lengths[:, None])[..., None]
        return x * self.keep
    def backward(self, dy):
        return dy * self.keep, None

class Product:  # a y that is no target, a g that is no vector
    def forward(self, y, g):
        self.y, self.g = y, g
        return np.einsum("btd,btd->bt", y, g)
    def backward(self, dz):
        return dz[..., None] * self.g, dz[..., None] * self.y

class OverTheBatch:
    def __init__(self, d):
        self.gamma = np.ones(d)
    def forward(self, x):
        self.x = x
        return x * self.gamma
    def backward(self, dy):
        self.dgamma = (dy * self.x).sum(0)
        return dy * self.gamma
"""


def test_right_layers_in_unusual_clothes_are_fed_what_they_take(good, capsys):
    good.write_text(UNUSUAL)
    for name in ("Called", "MeanPool", "Cut", "Product"):
        assert call(f"{good}:{name}") == 0, capsys.readouterr().out


def test_functions_of_a_linear_map_get_a_weight_and_a_bias_that_fit(good, capsys):
    good.write_text(
        "def linear_forward(x, W, b):\n    return x @ W + b, (x, W)\n\n"
        "def linear_backward(dy, cache):\n    x, W = cache\n    rows, d = x.reshape(-1, len(W)), dy.reshape(6, -1)\n"
        "    return dy @ W.T, rows.T @ d, d.sum(0)\n"
    )
    assert call(f"{good}:linear") == 0, capsys.readouterr().out


def test_a_slip_in_forward_is_not_blamed_on_the_inputs(good):
    good.write_text(UNUSUAL.replace("np.tanh(x)", "np.tahn(x)"))
    with pytest.raises(ValueError, match=r"forward\(x\) raised AttributeError: .*tahn"):
        call(f"{good}:Called")


def test_what_was_handed_to_forward_is_told_where_it_may_be_to_blame(good, capsys):
    good.write_text(UNUSUAL)
    assert call(f"{good}:OverTheBatch") == 1  # right for (B, D), and given (B, T, D)
    assert "checked with x (2, 3, 8); if forward takes something else, say it with --inputs" in capsys.readouterr().out
    assert call(f"{good}:OverTheBatch", "--inputs", "randn(6, 8)") == 0
    good.write_text(UNUSUAL.replace("tanh(x)", "tanh(x) @ np.ones((99, 3))"))
    with pytest.raises(ValueError, match=r"forward\(x\) accepts; with x \(2, 3, 8\) it raised ValueError: matmul"):
        call(f"{good}:Called")


def test_functions_and_how_to_make_and_feed(good, capsys):
    assert call(f"{good}:square", "--inputs", "randn(3, 2)") == 0
    assert call(f"{good}:Linear", "--init", "Linear(3, 2)", "--inputs", "randn(4, 3)") == 0
    assert "(4, 3)" in capsys.readouterr().out
    with pytest.raises(ValueError, match="NameError"):
        call(f"{good}:Linear", "--init", "Lineer(3, 2)")


def test_a_file_may_say_how(good, capsys):
    good.write_text(
        UNCLEAR + "\ndef gradcheck_example():\n    return Linear(2, 3), np.ones((4, 2)) + np.arange(8).reshape(4, 2)\n"
    )
    assert call(good) == 0
    assert call(f"{good}:Linear") == 0
    assert "(4, 2)" in capsys.readouterr().out


def test_an_unknown_argument_is_asked_for(good):
    good.write_text(UNCLEAR)
    with pytest.raises(ValueError, match=r"this, that; say it with --init"):
        call(f"{good}:Linear")


def test_layers_of_this_package_by_name(capsys):
    assert call("LayerNorm") == 0
    assert "PASS  LayerNorm" in capsys.readouterr().out
    assert call("Dropout") == 1
    assert "--replay" in capsys.readouterr().out
    assert call("Dropout", "--replay") == 0
    assert call("ScaledDotProductAttention", "--inputs", "randn(2, 3, 4), randn(2, 5, 4), randn(2, 5, 4)") == 0
    with pytest.raises(ValueError, match="no layer named 'LayerNrm'"):
        call("LayerNrm")


def test_json(bad, capsys):
    assert call(f"{bad}:Linear", "--json") == 1
    (report,) = json.loads(capsys.readouterr().out)
    assert report["status"] == "FAIL"
    assert report["subject"] == "Linear"


def test_hints_and_picture(bad, tmp_path, capsys):
    assert call(f"{bad}:Linear", "--hint", "1", "--plot", tmp_path / "b.png") == 1
    assert "b" in capsys.readouterr().out
    assert (tmp_path / "b.png").stat().st_size > 1000


@pytest.mark.parametrize("words", [[], ["LayerNorm", "--all"], ["LayerNorm", "--watch"], ["nothing.py"]])
def test_bad_usage(words):
    with pytest.raises(ValueError, match=r"give one of|--watch needs a file|no file"):
        call(*words)


def test_a_file_that_does_not_run(good):
    good.write_text("def f(:\n")
    with pytest.raises(ValueError, match=r"(?s)does not run: .*SyntaxError"):
        call(f"{good}:Linear")


def test_a_file_of_a_package_may_import_its_neighbours(tmp_path, capsys):
    inner = tmp_path / "my_package" / "layers"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
    (inner.parent / "sums.py").write_text("def total(x):\n    return x.sum(0)\n")
    (inner / "mine.py").write_text("from ..sums import total\n" + GOOD.replace("d.sum(0)", "total(d)"))
    assert call(f"{inner / 'mine.py'}:Linear") == 0, capsys.readouterr().out


def test_a_reader_who_has_seen_enough_is_no_error(bad):
    words = [sys.executable, "-m", "transformer_np", "gradcheck", str(bad)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


def test_watch_checks_again_on_save(good, capsys):
    """The file is broken while the watcher runs; also a syntax error in between does not end it."""

    def edit():
        for text in ("def f(:\n", BAD):
            time.sleep(0.4)
            saved = good.with_suffix(".new")
            saved.write_text(text, encoding="utf-8")
            os.replace(saved, good)  # in one go, so that the watcher sees each save once

    editor = threading.Thread(target=edit)
    args = argparse.Namespace(
        target=f"{good}:Linear",
        all=False,
        init=None,
        inputs=None,
        seed=0,
        replay=False,
        causal=False,
        no_contracts=False,
        hint=None,
        plot=None,
        json=False,
        watch=True,
    )
    editor.start()
    code = command.watch(args, looks=25)
    editor.join()
    out, err = capsys.readouterr()
    assert out.count("---") == 3
    assert "PASS  Linear" in out
    assert "FAIL  Linear" in out
    assert "SyntaxError" in err
    assert code == 1
