"""llama2.c's files: real weights write the published story, ours come back, and damaged files are refused."""

import itertools
import struct
from pathlib import Path

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.interop import huggingface, llama2c

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "stories260k"
with_weights = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs ../shared/data")
TINY = {"vocab_size": 11, "d_model": 8, "n_heads": 4, "n_kv_heads": 2, "n_layers": 2, "d_ff": 12, "max_len": 6}
TINY |= {"layout": "interleaved", "eps": 1e-5}


@pytest.fixture(scope="module")
def stories():
    return llama2c.load(FOLDER / "stories260K.bin"), llama2c.Tokenizer.load(FOLDER / "tok512.bin")


@pytest.fixture(scope="module")
def story():
    """What llama2.c's own documentation says the model writes at temperature 0."""
    page = (FOLDER / "stories260K.md").read_text(encoding="utf-8")
    return page.split("-t 0.0\n")[1].split("\n```")[0]


@with_weights
def test_the_published_story_comes_out_to_the_last_character(stories, story):
    model, tokenizer = stories
    ids = tnp.greedy(model, np.array([[tokenizer.bos]]), max_len=256, eos_id=tokenizer.bos)  # 256 is run.c's default
    assert tokenizer.decode(ids[0]) == story


@with_weights
def test_every_token_of_the_story_is_the_likeliest(stories, story):
    """The same in one forward: whatever writes token by token, with a cache or without, must write this."""
    model, tokenizer = stories
    ids = np.array([tokenizer.encode(story)])
    assert ids.shape == (1, 257)
    np.testing.assert_array_equal(model(ids[:, :-1]).argmax(-1), ids[:, 1:])


@with_weights
def test_the_story_goes_on_in_hugging_faces_layout(stories, story, tmp_path):
    huggingface.save(stories[0], tmp_path)
    ids = np.array([stories[1].encode(story)])
    np.testing.assert_array_equal(huggingface.load(tmp_path)(ids[:, :-1]).argmax(-1), ids[:, 1:])


@with_weights
def test_it_can_be_trained_on(stories):
    _, tokenizer = stories
    model = llama2c.load(FOLDER / "stories260K.bin").train()
    ids = np.array([tokenizer.encode("Der Ball ist rund. Das Spiel dauert neunzig Minuten.")])
    step = tnp.TrainStep(model, tnp.CrossEntropy(), tnp.AdamW(model.parameters(), lr=1e-3))
    losses = [float(step(ids[:, :-1], ids[:, 1:])) for _ in range(5)]
    assert all(later < earlier for earlier, later in itertools.pairwise(losses))


@with_weights
def test_the_file_comes_back_byte_for_byte(stories, tmp_path):
    """But for the tables of cosines and sines, which were made in float32 there and are made in float64 here."""
    llama2c.save(stories[0], tmp_path / "again.bin")
    theirs, again = (path.read_bytes() for path in (FOLDER / "stories260K.bin", tmp_path / "again.bin"))
    start = len(theirs) - 2 * 512 * 4 * 4
    assert again[:start] == theirs[:start]
    tables = [np.frombuffer(file[start:], "<f4") for file in (again, theirs)]
    np.testing.assert_allclose(*tables, rtol=0, atol=1e-4)  # angles up to 512, in float32


@pytest.mark.parametrize("tie", [True, False])
def test_there_and_back(tmp_path, tie):
    model = tnp.Llama(**TINY, tie_embeddings=tie, seed=3).eval()
    llama2c.save(model, tmp_path / "m.bin")
    again = llama2c.load(tmp_path / "m.bin")
    ids = np.array([[1, 5, 10]])
    np.testing.assert_array_equal(again(ids), model(ids))
    assert {**again.config, "seed": 3} == model.config
    vocab_size = struct.unpack("<7i", (tmp_path / "m.bin").read_bytes()[:28])[5]
    assert vocab_size == (11 if tie else -11)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "halves"}, "layout='halves'"),
        ({"eps": 1e-6, "window": 3}, "eps=1e-06, window=3"),
        ({"max_len": None}, "max_len=None"),
        ({"d_head": 6}, "d_head=6"),
        ({"rotary_base": 5e5}, "rotary_base=500000"),
        ({"rotary_scaling": {"kind": "linear", "factor": 2.0}}, "rotary_scaling="),
    ],
    ids=str,
)
def test_what_llama2c_has_not(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        llama2c.save(tnp.Llama(**{**TINY, **options}), tmp_path / "m.bin")
    with pytest.raises(TypeError, match="got Linear, expected Llama"):
        llama2c.save(tnp.layers.Linear(2, 2), tmp_path / "m.bin")
    assert not list(tmp_path.iterdir())


def header(**changes):
    sizes = {name: TINY[name] for name in llama2c.HEADER} | changes
    return struct.pack("<7i", *sizes.values())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: b"", "d_model needs 4 bytes"),
        (lambda file: file[:-4], "more bytes and"),
        (lambda file: file + b"\0\0\0\0", "more bytes and"),
        (lambda file: header(d_model=0) + file[28:], "d_model 0"),
        (lambda file: header(n_heads=3) + file[28:], "n_heads 3"),
        (lambda file: header(n_kv_heads=3) + file[28:], "n_kv_heads 3"),
        (lambda file: header(n_heads=8, n_kv_heads=8) + file[28:], "n_heads 8"),  # heads of one number cannot turn
        (lambda file: header(n_layers=2**31 - 1) + file[28:], "more bytes and"),
        (lambda file: header(vocab_size=-(2**31)) + file[28:], "more bytes and"),
        (lambda file: header(vocab_size=-11) + file[28:], "more bytes and"),
        (lambda file: b"24ka\1\0\0\0" + file[8:], "n_layers"),  # version 1 starts with "ak42"
    ],
)
def test_damaged_files(tmp_path, damage, message):
    llama2c.save(tnp.Llama(**TINY, tie_embeddings=True), tmp_path / "m.bin")
    (tmp_path / "m.bin").write_bytes(damage((tmp_path / "m.bin").read_bytes()))
    with pytest.raises(ValueError, match=message):
        llama2c.load(tmp_path / "m.bin")


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"m\.bin"):
        llama2c.load(tmp_path / "m.bin")


BYTES = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(f"<0x{i:02X}>".encode() for i in range(256))]


def small_tokenizer(**scores):
    """A tokenizer with a few merges, made by hand."""
    tokens = [*BYTES, b" ", b"a", b"b", b"c", *(token.replace("_", " ").encode() for token in scores)]
    return llama2c.Tokenizer(tokens, [0.0] * len(BYTES) + [-9.0] * 4 + list(scores.values()))


def pieces(tokenizer, text):
    return [tokenizer.tokens[i].decode() for i in tokenizer.encode(text, bos=False)]


def test_the_best_pair_is_merged_first():
    assert pieces(small_tokenizer(ab=-1.0, bc=-2.0), "abc") == [" ", "ab", "c"]
    assert pieces(small_tokenizer(ab=-2.0, bc=-1.0), "abc") == [" ", "a", "bc"]
    assert pieces(small_tokenizer(ab=-2.0, bc=-1.0, abc=-3.0, _abc=-4.0), "abc") == [" abc"]


def test_of_equal_scores_the_leftmost_is_merged():
    assert pieces(small_tokenizer(ab=-1.0, bc=-1.0), "abc") == [" ", "ab", "c"]
    assert pieces(small_tokenizer(aa=-1.0), "aaa") == [" ", "aa", "a"]


def test_what_has_no_token_becomes_bytes():
    tokenizer = small_tokenizer()
    ids = tokenizer.encode("aé", bos=False)
    assert ids == [259, 260, 3 + 0xC3, 3 + 0xA9]
    assert tokenizer.decode([1, *ids]) == "aé"
    assert tokenizer.decode(ids[:3]) == "a\ufffd"  # half a character


def test_empty_text():
    tokenizer = small_tokenizer()
    assert tokenizer.encode("", bos=False) == []
    assert tokenizer.encode("", eos=True) == [1, 2]
    assert tokenizer.decode([]) == tokenizer.decode([1, 2]) == ""


@pytest.mark.parametrize("bad", [-1, 263])
def test_ids_outside_the_vocabulary(bad):
    with pytest.raises(IndexError, match=f"got the id {bad}, expected 0 to 262"):
        small_tokenizer().decode([bad])


@with_weights
@pytest.mark.parametrize("text", ["", " ", "Once upon a time", "  two  spaces ", "naïve\n\t😀 한국어", "<s>", "<0x0A>"])
def test_texts_come_back(stories, text):
    _, tokenizer = stories
    assert tokenizer.decode(tokenizer.encode(text)) == text


def tokenizer_file(tokens=(*BYTES, b"a"), longest=9):
    return struct.pack("<I", longest) + b"".join(struct.pack("<fi", 0.0, len(t)) + t for t in tokens)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\1", "needs 4 bytes"),
        (tokenizer_file(BYTES[:9]), "at least 259"),
        (tokenizer_file(longest=5), "token 2 is 6 bytes long, the longest should have 5"),
        (tokenizer_file()[:-1], "token needs 1 bytes and 0 are left"),
        (tokenizer_file() + struct.pack("<fi", 0.0, -1), "token needs -1 bytes"),
    ],
)
def test_damaged_tokenizers(tmp_path, content, message):
    (tmp_path / "t.bin").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        llama2c.Tokenizer.load(tmp_path / "t.bin")
