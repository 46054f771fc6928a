"""Ids and tokens, in memory and on disk."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import transformer_np.data.vocabulary
from transformer_np.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary


@pytest.fixture
def vocabulary():
    return Vocabulary.from_texts([["b", "a", "c"], ["c", "é"], ["c", "b"]])


def test_special_ids(vocabulary):
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert (vocabulary.pad, vocabulary.bos, vocabulary.eos, vocabulary.unk) == (0, 1, 2, 3)
    assert vocabulary.decode([0, 1, 2, 3]) == ["<pad>", "<bos>", "<eos>", "<unk>"]


def test_order_is_by_count_then_code_point(vocabulary):
    assert vocabulary.tokens[4:] == ("c", "b", "a", "é")
    assert len(vocabulary) == 8


def test_encode_and_decode_are_inverse(vocabulary):
    ids = vocabulary.encode(["é", "a", "c"])
    assert vocabulary.decode(ids) == ["é", "a", "c"]
    assert vocabulary.decode(np.array(ids)) == ["é", "a", "c"]
    assert vocabulary.encode([]) == []
    assert vocabulary.decode([]) == []


def test_unknown_token_becomes_unk(vocabulary):
    assert vocabulary.encode(["a", "zebra"]) == [6, UNK]
    assert "zebra" not in vocabulary
    assert "a" in vocabulary


@pytest.mark.parametrize("bad", [8, -1, np.int64(99)])
def test_id_out_of_range(vocabulary, bad):
    with pytest.raises(IndexError, match=rf"got the id {bad}, expected 0 to 7"):
        vocabulary.decode([4, bad])


def test_id_that_is_no_whole_number(vocabulary):
    with pytest.raises(TypeError):
        vocabulary.decode([1.5])


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["a", "b"], "as the first tokens"),
        (["<pad>", "<bos>", "<eos>", "<unk>", "a", "a"], "'a' comes more than once"),
        (["<pad>", "<bos>", "<eos>", "<unk>", "<pad>"], "'<pad>' comes more than once"),
        (["<pad>", "<bos>", "<eos>", "<unk>", ""], "not empty"),
        (["<pad>", "<bos>", "<eos>", "<unk>", 7], "got the token 7"),
    ],
)
def test_unusable_tokens(tokens, message):
    with pytest.raises(ValueError, match=message):
        Vocabulary(tokens)


def test_save_and_load(vocabulary, tmp_path):
    path = tmp_path / "vocabulary.json"
    vocabulary.save(path)
    assert Vocabulary.load(path) == vocabulary
    assert json.loads(path.read_bytes().decode("utf-8"))["tokens"] == list(vocabulary.tokens)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"tokens": ["<pad>", "<bos>"',  # cut short
        b"\xff\xfe\x00",  # not UTF-8
        b"[1, 2]",
        b'{"words": []}',
        b'{"tokens": "abc"}',
        b'{"tokens": []}',
        b'{"tokens": ["<pad>", "<bos>", "<eos>", "<unk>", [1]]}',
        b'{"tokens": ["<pad>", "<bos>", "<eos>", "<unk>", "a", "a"]}',
    ],
)
def test_damaged_file_is_named(content, tmp_path):
    path = tmp_path / "source_vocabulary.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"source_vocabulary\.json: not a usable vocabulary file"):
        Vocabulary.load(path)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.json"):
        Vocabulary.load(tmp_path / "nothing.json")


def test_bp_76_windows_text_encoding(vocabulary, tmp_path):
    """An interpreter whose default encoding cannot hold an é reads and writes the same file, and no open there leaves
    the encoding to the system (EncodingWarning is an error)."""
    path, copy = tmp_path / "vocabulary.json", tmp_path / "copy.json"
    vocabulary.save(path)
    assert b'"\xc3\xa9"' in path.read_bytes()
    program = "import sys; sys.path.insert(0, sys.argv[1]); from transformer_np.data import Vocabulary"
    program += "; v = Vocabulary.load(sys.argv[2]); assert v.tokens[-1] == chr(0xE9); v.save(sys.argv[3])"
    folder = Path(transformer_np.__file__).parents[1]
    options = ["-X", "utf8=0", "-X", "warn_default_encoding", "-W", "error::EncodingWarning", "-c", program]
    environment = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, *options, str(folder), str(path), str(copy)], check=True, env=environment)
    assert copy.read_bytes() == path.read_bytes()


def test_what_cannot_be_written_leaves_the_older_file(vocabulary, tmp_path):
    path = tmp_path / "v.json"
    vocabulary.save(path)
    with pytest.raises(UnicodeEncodeError):
        Vocabulary([*vocabulary.tokens, "\ud800"]).save(path)  # half of a pair, which is no character
    assert Vocabulary.load(path) == vocabulary
