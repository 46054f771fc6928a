"""The character tokenizer: every text comes back, the empty one too, and files are UTF-8 on every system."""

import builtins

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_np.data.characters import CharacterTokenizer, read_text
from transformer_np.data.vocabulary import Vocabulary


def test_ids_are_in_code_point_order_after_the_special_tokens():
    tokenizer = CharacterTokenizer.from_text("hello\n")
    assert tokenizer.vocabulary.tokens == ("<pad>", "<bos>", "<eos>", "<unk>", "\n", "e", "h", "l", "o")
    assert tokenizer.encode("hole") == [6, 8, 7, 5]
    assert len(tokenizer) == 9


@given(st.text(min_size=1))
def test_a_text_comes_back(text):
    tokenizer = CharacterTokenizer.from_text(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_empty_text():
    """BP-74."""
    tokenizer = CharacterTokenizer.from_text("a")
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""
    assert tokenizer.decode(np.zeros(0, int)) == ""
    with pytest.raises(ValueError, match="the text is empty"):
        CharacterTokenizer.from_text("")


def test_special_and_unknown_tokens():
    tokenizer = CharacterTokenizer.from_text("ab")
    assert tokenizer.encode("axb") == [4, 3, 5]
    assert tokenizer.decode(np.array([1, 4, 3, 5, 2, 4, 0])) == "a<unk>b"
    with pytest.raises(IndexError, match="got the id 6"):
        tokenizer.decode([6])


def test_files_are_utf8_on_every_system(tmp_path, monkeypatch):
    """BP-76: C3 A9 is one é, not two characters of cp1252, which is what open() means by default on Windows."""
    real_open = builtins.open

    def windows_open(file, mode="r", buffering=-1, encoding=None, *args, **kwargs):
        return real_open(file, mode, buffering, "cp1252" if encoding is None else encoding, *args, **kwargs)

    (tmp_path / "text.txt").write_bytes(b"\xc3\xa9\r\n")
    monkeypatch.setattr(builtins, "open", windows_open)
    assert read_text(tmp_path / "text.txt") == "é\r\n"
    tokenizer = CharacterTokenizer.from_file(tmp_path / "text.txt")
    assert tokenizer.vocabulary.tokens[4:] == ("\n", "\r", "é")
    tokenizer.save(tmp_path / "v.json")
    assert CharacterTokenizer.load(tmp_path / "v.json").vocabulary == tokenizer.vocabulary


def test_a_file_that_is_no_utf8(tmp_path):
    (tmp_path / "text.txt").write_bytes(b"\xe9")
    with pytest.raises(ValueError, match=r"text\.txt is no UTF-8"):
        CharacterTokenizer.from_file(tmp_path / "text.txt")


def test_a_vocabulary_of_words():
    with pytest.raises(ValueError, match="got the token 'ab', expected single characters"):
        CharacterTokenizer(Vocabulary(["<pad>", "<bos>", "<eos>", "<unk>", "a", "ab"]))
