"""The command step: a page for one sentence, from a trained run, or without one."""

import base64
import functools
import json
import re
import webbrowser
import zlib

import pytest

import transformer_np.cli.train
import transformer_np.data
from transformer_np.cli import main
from transformer_np.data import DateTask
from transformer_np.training import load_run, translate

SMALL = ["--d-model", "16", "--heads", "2", "--layers", "1", "--d-ff", "16", "--batch-size", "8", "--threads", "1"]
SENTENCE = "Sunday, November 29, 2026"


@pytest.fixture(autouse=True)
def few_dates(tmp_path, monkeypatch):
    """Each test stands in an empty folder, and its calendar is short."""
    monkeypatch.chdir(tmp_path)
    few = functools.partial(DateTask, n_train=200, n_validation=5, n_test=20)
    monkeypatch.setattr(transformer_np.data, "DateTask", few)


@pytest.fixture
def trained(tmp_path, monkeypatch, capsys):
    """A run of two steps."""
    monkeypatch.setattr(transformer_np.cli.train, "draw", lambda *arguments: None)
    assert main(["train", "--steps", "2", *SMALL, "--quiet"]) == 0
    capsys.readouterr()
    return tmp_path / "runs" / "en-ko"


def document(path):
    """What the page says of itself."""
    text = re.search(r'id="document" data-size="\d+">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)[1]
    return json.loads(zlib.decompress(base64.b64decode(text)))


def test_a_page_of_the_last_run(trained, tmp_path, capsys):
    """The sentence's tokens and the model's own translation are on it; forward, loss and backward; badges."""
    assert main(["step", SENTENCE]) == 0
    model, source, target, _ = load_run(trained)
    (says,) = translate(model, source, target, [SENTENCE])
    printed = capsys.readouterr()
    assert printed.err == ""
    lines = printed.out.splitlines()
    assert lines[0].startswith(f"{SENTENCE}  =  ")
    assert re.fullmatch(r"steps\.html \([\d.]+ MB\): [\d,]+ arrays forward, [\d,]+ backward, loss [\d.e-]+", lines[1])
    page = document(tmp_path / "steps.html")
    assert page["tokens"]["src"] == [source.vocabulary.decode(source.encode(SENTENCE))]
    assert page["tokens"]["tgt"][0][0] == "<bos>"
    begun = [target.vocabulary.tokens.index(t) for t in page["tokens"]["tgt"][0]]
    assert says.startswith(target.decode(begun))  # the last token is only said, not read
    assert page["words"]["tgt"] == list(target.vocabulary.tokens)
    assert {scene["phase"] for scene in page["scenes"]} == {"forward", "loss", "backward"}
    assert page["badges"]["encoder.layers.0.self_attention.attention"]["status"] == "ok"


def test_a_target_of_ones_own(trained, tmp_path, capsys, monkeypatch):
    """--target is what the loss is counted from; --out, --run and --open are obeyed."""
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    options = ["--target", "2026년 1월 2일", "--out", "mine.html", "--run", str(trained), "--no-check", "--open"]
    assert main(["step", SENTENCE, *options]) == 0
    page = document(tmp_path / "mine.html")
    assert "".join(page["tokens"]["tgt"][0]) == "<bos>2026년 1월 2일"
    assert page["badges"] == {}
    assert opened == [(tmp_path / "mine.html").resolve().as_uri()]


def test_without_a_run(tmp_path, capsys):
    """An untrained model is shown, and it is said how to train one."""
    assert main(["step", SENTENCE, "--no-check"]) == 0
    assert "no trained model in runs/" in capsys.readouterr().err
    page = document(tmp_path / "steps.html")
    assert len(page["tokens"]["tgt"][0]) <= 12
    assert (tmp_path / "steps.html").stat().st_size <= 3_000_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([" "], "there is nothing to translate"),
        ([SENTENCE, "--target", " "], "--target is empty"),
        ([SENTENCE, "--out", "nowhere/steps.html"], "--out must be a file in a folder that exists"),
        ([SENTENCE, "--run", "nowhere"], "no run folder at nowhere"),
    ],
)
def test_what_cannot_be(options, message, tmp_path, capsys):
    """One line that says what is wrong; no page."""
    assert main(["step", *options]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "steps.html").exists()
