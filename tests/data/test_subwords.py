"""Subword tokenizers: files of Hugging Face's format written by hand, training, padding, empty texts, ties."""

import json
import subprocess
import sys

import numpy as np
import pytest

from transformer_np.data.subwords import SubwordTokenizer

pytest.importorskip("tokenizers")

BPE = {
    "model": {"type": "BPE", "vocab": {"<unk>": 0, "a": 1, "b": 2, "c": 3, "ab": 4, "abc": 5}, "unk_token": "<unk>"}
    | {"merges": ["a b", "ab c"]},
}
WORDPIECE = {
    "pre_tokenizer": {"type": "Whitespace"},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
    "model": {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {"[UNK]": 0, "un": 1, "##aff": 2, "##able": 3, "##a": 4},
    },
}
UNIGRAM = {
    "model": {
        "type": "Unigram",
        "unk_id": 0,
        "vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -1.0], ["ab", -1.5], ["abb", -3.5]],
        "byte_fallback": False,
    },
}


def write(folder, content):
    start = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None}
    start |= {"pre_tokenizer": None, "post_processor": None, "decoder": None}
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({**start, **content}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("content", "text", "ids"),
    [
        (BPE, "abcab", [5, 4]),
        (WORDPIECE, "unaffable una", [1, 2, 3, 1, 4]),
        (UNIGRAM, "abb", [3, 2]),  # -1.5 - 1.0 beats -3.5, and -1.0 three times
    ],
    ids=["BPE", "WordPiece", "Unigram"],
)
def test_files_written_by_hand(tmp_path, content, text, ids):
    tokenizer = SubwordTokenizer.load(write(tmp_path, content))
    assert tokenizer.encode(text) == ids
    assert SubwordTokenizer.load(tmp_path).encode(text) == ids  # the folder will do
    tokenizer.save(tmp_path / "again.json")
    assert SubwordTokenizer.load(tmp_path / "again.json").encode(text) == ids


TEXTS = ["the cat sat on the mat", "the dog sat on the cat", "naïve café 😀"] * 3


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_a_trained_one_brings_texts_back(tmp_path, kind):
    tokenizer = SubwordTokenizer.train(TEXTS, 300, kind)
    assert [tokenizer.tokenizer.id_to_token(i) for i in range(4)] == ["<pad>", "<bos>", "<eos>", "<unk>"]
    for text in TEXTS[:3]:
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert len(tokenizer.encode(text)) < len(text)
    tokenizer.save(tmp_path / "tokenizer.json")
    assert SubwordTokenizer.load(tmp_path).encode(TEXTS[0]) == tokenizer.encode(TEXTS[0])


@pytest.mark.parametrize("text", [" two  spaces ", "\r\n\t", "한국어", "\0", "<pad", "e\u0301", "a<pad>b <eos>"])
def test_bytes_bring_every_text_back(text):
    tokenizer = SubwordTokenizer.train(TEXTS, 280)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_a_text_that_spells_special_tokens_is_a_text(tmp_path, kind):
    tokenizer = SubwordTokenizer.train([*TEXTS, "a < b > c <pads> bunks"], 300, kind)
    tokenizer.save(tmp_path / "tokenizer.json")
    for each in (tokenizer, SubwordTokenizer.load(tmp_path)):
        for token in ("<pad>", "<bos>", "<eos>", "<unk>"):
            ids = each.encode(f"the {token} cat")
            assert not set(ids) & ({0, 1, 2} if kind == "wordpiece" else {0, 1, 2, 3})  # it knows whole words only
            assert each.encode(f"the {token} cat", special=True) != ids
        assert each.batch(["<pad> sat"], special=False)[0].min() > 0
    if kind == "unigram":
        assert tokenizer.decode(tokenizer.encode("the <pad> sat")) == "the <pad> sat"


def test_ids_may_have_gaps(tmp_path):
    model = {"type": "WordLevel", "vocab": {"a": 0, "b": 7, "<unk>": 2}, "unk_token": "<unk>"}
    tokenizer = SubwordTokenizer.load(write(tmp_path, {"pre_tokenizer": {"type": "Whitespace"}, "model": model}))
    assert len(tokenizer) == 8  # what an embedding needs
    assert tokenizer.decode(tokenizer.encode("b a")) == "b a"


def test_empty_text(tmp_path):
    """BP-74: 256 bytes and no merges, and nothing to encode."""
    tokenizer = SubwordTokenizer.train([""], 260)
    assert len(SubwordTokenizer.train([""], 1000)) == len(tokenizer) == 260
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""
    with pytest.raises(ValueError, match="got 2 texts without a single token"):
        tokenizer.batch(["", ""])
    with pytest.raises(ValueError, match="got 0 texts"):
        tokenizer.batch([])
    for kind in ("wordpiece", "unigram"):
        with pytest.raises(ValueError, match=f"{kind} needs a text to learn from"):
            SubwordTokenizer.train(["", " "], 300, kind)


def test_of_equally_frequent_pairs_the_one_with_smaller_ids_is_merged():
    """BP-75: first "aa", four times. Then (a, b) and (aa, a), twice each: a < aa. Then (aa, ab)."""
    tokenizer = SubwordTokenizer.train(["aaabdaaabac"], 260 + 3)
    tokens = [tokenizer.tokenizer.id_to_token(i) for i in range(260, 263)]
    assert tokens == ["aa", "ab", "aaab"]
    pieces = [tokenizer.tokenizer.id_to_token(i) for i in tokenizer.encode("aaabdaaabac")]
    assert pieces == ["aaab", "d", "aaab", "a", "c"]


def test_training_twice_gives_the_same():
    assert (
        SubwordTokenizer.train(TEXTS, 290).tokenizer.to_str() == SubwordTokenizer.train(TEXTS, 290).tokenizer.to_str()
    )


def test_batches_are_padded_and_cut(tmp_path):
    around = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<unk>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<unk>": {"id": "<unk>", "ids": [0], "tokens": ["<unk>"]}},
    }
    padding = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 3}
    padding |= {"pad_type_id": 0, "pad_token": "c"}
    tokenizer = SubwordTokenizer.load(write(tmp_path, {**BPE, "post_processor": around, "padding": padding}))
    assert tokenizer.encode("ab") == [4]  # not filled up, whatever the file says of batches
    assert tokenizer.encode("ab", special=True) == [0, 4]
    ids, mask = tokenizer.batch(["abcab", "b", ""])
    np.testing.assert_array_equal(ids, [[0, 5, 4], [0, 2, 3], [0, 3, 3]])
    np.testing.assert_array_equal(mask, [[1, 1, 1], [1, 1, 0], [1, 0, 0]])
    assert tokenizer.batch(["abcab", "b"], max_len=2)[0].tolist() == [[0, 5], [0, 2]]
    assert tokenizer.encode("abcab") == [5, 4]  # the limit was for that batch
    assert tokenizer.batch(["abcab", "b"], special=False, max_len=1)[0].tolist() == [[5], [2]]
    with pytest.raises(ValueError, match="max_len must be at least 2 here, got 1"):  # no room but for <unk>
        tokenizer.batch(["abcab", "b"], max_len=1)


@pytest.mark.parametrize("bad", [-1, 6])
def test_ids_outside_the_vocabulary(tmp_path, bad):
    with pytest.raises(IndexError, match=f"got the id {bad}, expected 0 to 5"):
        SubwordTokenizer.load(write(tmp_path, BPE)).decode([bad])


def test_files_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        SubwordTokenizer.load(tmp_path)
    for content in ("", "{}", '{"model": {"type": "Strange"}}'):
        (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match="is no tokenizer file"):
            SubwordTokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="is no tokenizer file"):
        SubwordTokenizer.load(tmp_path)


def test_bad_arguments():
    with pytest.raises(ValueError, match="kind must be one of 'bpe', 'wordpiece', 'unigram', got 'words'"):
        SubwordTokenizer.train(TEXTS, 300, "words")
    with pytest.raises(ValueError, match="vocab_size of at least 260, got 259"):
        SubwordTokenizer.train(TEXTS, 259)
    with pytest.raises(TypeError, match="texts must be several texts, got the one text 'the cat'"):
        SubwordTokenizer.train("the cat", 300)
    tokenizer = SubwordTokenizer.train(TEXTS, 300)
    with pytest.raises(TypeError, match="batch: texts must be several texts"):
        tokenizer.batch("the cat")
    with pytest.raises(TypeError):
        tokenizer.decode([5.7])


def test_the_module_needs_the_library_only_when_used():
    code = (
        "import sys; sys.modules['tokenizers'] = None\n"
        "from transformer_np.data.subwords import SubwordTokenizer\n"
        "try: SubwordTokenizer.train(['a'], 300)\n"
        "except ImportError as error: assert 'transformer_np[tokenizers]' in str(error)\n"
        "else: raise SystemExit(1)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
