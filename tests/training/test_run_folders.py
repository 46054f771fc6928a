"""Run folders: nothing is overwritten, and whatever is missing, damaged or mismatched is named."""

import errno
import json
import os
import pathlib

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.data import Tokenizer, Vocabulary
from transformer_np.data.vocabulary import SPECIAL_TOKENS
from transformer_np.training import last_run, load_run, new_run, save_run
from transformer_np.training.run import CONFIG, HISTORY, VOCABULARIES, WEIGHTS, read_json, write_json

FILES = (WEIGHTS, CONFIG, *VOCABULARIES)


def parts(seed=0):
    source, target = Vocabulary([*SPECIAL_TOKENS, "a", "b"]), Vocabulary([*SPECIAL_TOKENS, "가", "나", "다"])
    model = tnp.Transformer(len(source), len(target), 8, 2, 1, 1, 16, max_len=9, seed=seed)
    return model, (source, target)


@pytest.fixture
def folder(tmp_path):
    """A saved run."""
    made = new_run(tmp_path, "en-ko")
    save_run(made, *parts(), {"from": "en", "to": "ko"}, {"losses": [2.0, 1.0]})
    return made


def test_new_run_never_overwrites(tmp_path):
    root = tmp_path / "deep" / "runs"
    names = [new_run(root, "en-ko").name for _ in range(3)]
    assert names == ["en-ko", "en-ko-2", "en-ko-3"]
    (root / "en-fr").write_text("a file may stand there too")
    assert new_run(root, "en-fr").name == "en-fr-2"
    assert (root / "en-fr").read_text() == "a file may stand there too"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../up", "/tmp/x", "a\\b"])
def test_a_name_is_a_plain_folder_name(tmp_path, name):
    with pytest.raises(ValueError, match="a run's name must be a plain folder name"):
        new_run(tmp_path / "runs", name)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "runs").write_text("not a folder")
    for root in (tmp_path / "runs", tmp_path / "runs" / "deeper"):
        with pytest.raises((FileExistsError, NotADirectoryError), match="runs"):
            new_run(root, "en-ko")
    assert (tmp_path / "runs").read_text() == "not a folder"


def test_save_and_load(folder):
    model, source, target, config = load_run(folder)
    original, vocabularies = parts()
    assert isinstance(source, Tokenizer)
    assert (source.vocabulary, target.vocabulary) == vocabularies
    assert config == {"from": "en", "to": "ko"}
    state = original.state_dict()
    assert all(value.tobytes() == state[name].tobytes() for name, value in model.state_dict().items())
    assert read_json(folder / HISTORY) == {"losses": [2.0, 1.0]}
    assert sorted(path.name for path in folder.iterdir()) == sorted([*FILES, HISTORY])  # no temporary file is left


def test_last_run_is_the_one_saved_last(folder):
    root = folder.parent
    later = new_run(root, "aa")
    assert last_run(root) == folder  # the new one is not finished
    save_run(later, *parts(), {}, {})
    for path, seconds in ((folder, 2_000), (later, 1_000)):
        os.utime(path / WEIGHTS, (seconds, seconds))
    assert last_run(root) == folder
    os.utime(later / WEIGHTS, (3_000, 3_000))
    assert last_run(root) == later


def test_no_run_yet(tmp_path):
    for root in (tmp_path, tmp_path / "none"):
        with pytest.raises(FileNotFoundError, match=r"no finished run in .*train one first \(transformer-np train\)"):
            last_run(root)
    with pytest.raises(FileNotFoundError, match="no run folder at"):
        load_run(tmp_path / "none")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"is not complete: it lacks {name}$"):
        load_run(folder)


def test_all_missing_files_are_named(folder):
    for name in FILES[1:]:
        (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"it lacks {', '.join(FILES[1:])}"):
        load_run(folder)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00 not what it was", b"[1, 2]"])
def test_a_damaged_file_is_named(folder, name, content):
    (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=name):
        load_run(folder)


def test_weights_cut_short(folder):
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=f"{WEIGHTS} is damaged or was not written by transformer_np"):
        load_run(folder)


def test_parts_that_do_not_belong_together(folder):
    Vocabulary([*SPECIAL_TOKENS, "a"]).save(folder / VOCABULARIES[0])
    with pytest.raises(
        ValueError, match=r"do not belong together: the model has vocabularies of \(6, 7\) tokens, the files \(5, 7\)"
    ):
        load_run(folder)


class FullDisk:
    """Stands for `Path.write_bytes` and `Path.write_text` on a disk that has room for `room` bytes more."""

    def __init__(self, monkeypatch, room):
        self.room, self.write = room, pathlib.Path.write_bytes
        monkeypatch.setattr(pathlib.Path, "write_bytes", lambda path, content: self.write_some(path, content))
        monkeypatch.setattr(
            pathlib.Path, "write_text", lambda path, text, **options: self.write_some(path, text.encode("utf-8"))
        )

    def write_some(self, path, content):
        self.write(path, content[: self.room])
        self.room -= len(content)
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))


def test_a_full_disk_leaves_older_files_as_they_were(folder, monkeypatch):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    model, _ = parts(seed=1)
    FullDisk(monkeypatch, room=1000)
    with pytest.raises(OSError, match=r"No space left on device: '.*weights\.safetensors"):
        model.save(folder / WEIGHTS)
    with pytest.raises(OSError, match=r"No space left on device: '.*history\.json"):
        write_json(folder / HISTORY, {"losses": [0.5] * 1000})
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_disk_that_fills_up_while_a_run_is_saved(tmp_path, monkeypatch):
    made = new_run(tmp_path, "en-ko")
    FullDisk(monkeypatch, room=2000)  # enough for all but the weights
    with pytest.raises(OSError, match="No space left on device"):
        save_run(made, *parts(), {"from": "en"}, {"losses": []})
    with pytest.raises(FileNotFoundError, match="no finished run"):
        last_run(tmp_path)
    with pytest.raises(FileNotFoundError, match=f"is not complete: it lacks {WEIGHTS}$"):
        load_run(made)
    assert not list(made.glob("*.part"))


def test_json_is_readable_and_exact(tmp_path):
    content = {"losses": [0.1, 1 / 3], "example": "2026년 11월 29일"}
    write_json(tmp_path / "x.json", content)
    text = (tmp_path / "x.json").read_text(encoding="utf-8")
    assert "2026년" in text
    assert json.loads(text) == read_json(tmp_path / "x.json") == content
    np.testing.assert_array_equal(json.loads(text)["losses"], content["losses"])  # floats come back bit for bit
