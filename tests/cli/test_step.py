"""The command step: a page for one sentence, prompt or image, from a trained run, or without one."""

import base64
import functools
import json
import re
import webbrowser
import zlib

import numpy as np
import pytest

import transformer_np as tnp
import transformer_np.cli.train
import transformer_np.data
from transformer_np.cli import main
from transformer_np.data import DateTask, DigitsTask
from transformer_np.training import load_run, load_text_run, translate

TINY = ["--d-model", "8", "--heads", "2", "--layers", "1", "--d-ff", "8", "--threads", "1", "--quiet"]
TEXT = "".join(f"Line {i}: the cat sat on mat number {i * 7 % 31}.\n" for i in range(60))
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


@pytest.fixture
def run_of(tmp_path, monkeypatch, capsys):
    """Train for two steps on a task; return the run's folder."""
    (tmp_path / "small.txt").write_text(TEXT, encoding="utf-8")
    monkeypatch.setattr(transformer_np.cli.train, "draw", lambda *arguments: None)

    def make(task, *options):
        assert main(["train", "--task", task, "--steps", "2", *TINY, *options]) == 0
        capsys.readouterr()
        return tmp_path / "runs" / task

    return make


def mean_loss(logits, targets):
    """Cross-entropy by its definition, in float64."""
    logits = logits.astype(np.float64)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -np.take_along_axis(log_p, targets[..., None], -1).mean()


def test_a_prompt(run_of, tmp_path, capsys):
    """Each character is to be followed by the next one, the last by the model's likeliest; blanks are on the page."""
    folder = run_of("text", "--file", "small.txt", "--length", "16")
    assert main(["step", "the cat\n1", "--no-check"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    model, tokenizer, _ = load_text_run(folder)
    ids = np.array([tokenizer.encode("the cat\n1")])
    logits = model.eval()(ids)
    after = int(logits[0, -1].argmax())
    targets = np.array([[*ids[0, 1:], after]])
    right = int((logits.argmax(-1) == targets).sum())
    (likeliest,) = tokenizer.vocabulary.decode([after])
    first, second, _ = out.splitlines()
    assert first == f"'the cat\\n1': most likely {likeliest!r} follows; {right} of 9 next characters are the likeliest"
    assert second.endswith(f", loss {mean_loss(logits, targets):.3g}")
    page = document(tmp_path / "steps.html")
    assert page["tokens"] == {"src": [], "tgt": [list("the cat\n1")]}
    assert page["words"]["tgt"] == list(tokenizer.vocabulary.tokens)
    assert {scene["phase"] for scene in page["scenes"]} == {"forward", "loss", "backward"}
    (given,) = page["scenes"][0]["outputs"]
    assert page["views"][given["view"]]["axes"] == ["", "tgt"]


@pytest.mark.parametrize(
    ("options", "shown", "note"),
    [
        (["--length", "4"], "the ", "the first 4 of 7 characters; --length shows more"),
        (["--length", "99"], "the cat", ""),
        (["--target", " sat"], "the cat sa", ""),
        (["--target", " sat on the mat"], "the cat sat on t", "the first 16 of 22 characters; the model sees no more"),
    ],
)
def test_how_much_of_a_prompt(run_of, tmp_path, capsys, options, shown, note):
    """As much as --length and the model allow, and what is left out is said; --target goes on from the prompt."""
    run_of("text", "--file", "small.txt", "--length", "16")
    assert main(["step", "the cat", "--no-check", *options]) == 0
    assert note in capsys.readouterr().err
    assert document(tmp_path / "steps.html")["tokens"]["tgt"] == [list(shown)]


def test_an_image(run_of, tmp_path, capsys):
    """A held-out image by its number, in the split of the run's seed; patches are named by row and column."""
    pytest.importorskip("sklearn")
    folder = run_of("digits", "--seed", "3")
    assert main(["step", "7", "--no-check"]) == 0
    task, model = DigitsTask(seed=3), tnp.load(folder / "weights.safetensors").eval()
    logits, label = model(task.test_images[7:8]), task.test_labels[7]
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first == f"image 7, to be read as {label}: the model reads {logits.argmax()}"
    assert second.endswith(f", loss {mean_loss(logits, np.array([label])):.3g}")
    page = document(tmp_path / "steps.html")
    names = [f"{i},{j}" for i in range(4) for j in range(4)]
    assert page["tokens"] == {"src": [names], "tgt": [["[class]", *names]]}
    assert page["words"]["tgt"] == list("0123456789")
    assert page["patches"] == {"view": page["scenes"][0]["outputs"][0]["view"], "size": 2, "rows": 4, "columns": 4}
    assert (tmp_path / "steps.html").stat().st_size <= 3_000_000


def test_the_last_run_of_any_task(run_of, tmp_path, capsys):
    """Without --run and --task the last run counts; without INPUT its own example."""
    folder = run_of("reverse", "--length", "5")
    run_of("text", "--file", "small.txt", "--length", "16")
    assert main(["step", "--no-check", "--out", "text.html"]) == 0
    held_out = TEXT[len(TEXT) - len(TEXT) // 10 :]
    assert "".join(document(tmp_path / "text.html")["tokens"]["tgt"][0]) == held_out[:16]
    assert main(["step", "--no-check", "--task", "reverse"]) == 0
    example = json.loads((folder / "config.json").read_text(encoding="utf-8"))["example"]
    assert document(tmp_path / "steps.html")["tokens"]["src"] == [list(example)]


@pytest.mark.parametrize("task", ["text", "digits", "reverse"])
def test_each_task_without_a_run(task, tmp_path, capsys):
    """An untrained model of the task is shown, and it is said how to train one."""
    if task == "digits":
        pytest.importorskip("sklearn")
    assert main(["step", "--task", task, "--no-check"]) == 0
    assert f"no trained model of the task {task} in runs/" in capsys.readouterr().err
    assert (tmp_path / "steps.html").stat().st_size <= 3_000_000


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("text", [""], "the prompt is empty"),
        ("text", ["a", "--target", ""], "--target is empty"),
        ("digits", ["seven"], "give the number of a held-out image, 0 to 358, got 'seven'"),
        ("digits", ["359"], "0 to 358, got '359'"),
        ("digits", ["1", "--target", "ten"], "--target must be a digit from 0 to 9, got 'ten'"),
    ],
)
def test_what_a_task_cannot_take(task, options, message, tmp_path, capsys):
    """One line that says what is wrong; no page."""
    if task == "digits":
        pytest.importorskip("sklearn")
    assert main(["step", "--task", task, *options]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "steps.html").exists()


def test_a_run_has_its_task(capsys):
    """--run and --task together are bad usage."""
    with pytest.raises(SystemExit, match="2"):
        main(["step", "--run", "runs/en-ko", "--task", "dates"])
    assert "--task and --run exclude each other" in capsys.readouterr().err


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
