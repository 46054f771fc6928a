"""transformer-np generate: what it prints is what the model writes, wherever the model comes from."""

import json
import os
import struct

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.data import CharacterTokenizer, SubwordTokenizer
from transformer_np.interop import ctranslate2, huggingface, llama2c
from transformer_np.training import save_run

TEXT = "\n Thecatsomr."


def make_run(folder, seed=0, task="text"):
    """A run folder of the task text with weights large enough that the texts are not all alike."""
    tokenizer = CharacterTokenizer.from_text(TEXT)
    model = tnp.GPT(len(tokenizer), 16, 2, 1, max_len=8, dropout=0.1, seed=seed)
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data += 0.5 * rng.standard_normal(p.shape).astype("float32")
    folder.mkdir(parents=True)
    save_run(folder, model, (tokenizer.vocabulary,), {"task": task}, {"losses": []})
    return model.eval(), tokenizer


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A folder with one run, runs/text, in which the test stands; its model and tokenizer."""
    monkeypatch.chdir(tmp_path)
    return make_run(tmp_path / "runs" / "text")


def most_likely(model, ids, n_new, forbid=(), limit=None, start=()):
    """Token after token, all computed anew; cut to the last half where the model sees no more."""
    ids = list(ids)
    for _ in range(n_new):
        seen = ids
        if limit is not None and len(ids) > limit:
            seen = ids[-(limit // 2 + (len(ids) - limit - 1) % (limit - limit // 2 + 1)) :]
        logits = model(np.array([seen]))[0, -1]
        logits[list(forbid)] = -np.inf
        ids.append(int(logits.argmax()))
    return ids


@pytest.mark.parametrize("n_new", [1, 6, 40])
def test_it_prints_the_prompt_and_what_follows(command, trained, n_new):
    model, tokenizer = trained
    result = command("generate", "--temperature", 0, "--max-len", n_new, "The")
    assert result.code == 0
    assert result.err == ""
    ids = most_likely(model, tokenizer.encode("The"), n_new, range(4), limit=8)
    assert result.out == tokenizer.decode(ids) + "\n"
    assert len(ids) == 3 + n_new


def test_the_same_seed_gives_the_same_text(command, trained):
    one, same, other = (command("generate", "--seed", seed, "cat").out for seed in (1, 1, 2))
    assert one == same != other
    assert one.startswith("cat")
    assert len(one) == 3 + 200 + 1
    assert command("generate", "cat").out != command("generate", "cat").out


def test_settings_reach_the_sampler(command, trained):
    greedy = command("generate", "--temperature", 0, "cat").out
    assert command("generate", "--top-k", 1, "cat").out == greedy
    assert command("generate", "--top-p", 1e-9, "cat").out == greedy
    assert command("generate", "--temperature", 1e-9, "cat").out == greedy
    assert command("generate", "--temperature", 0, "--repetition-penalty", 5, "cat").out != greedy


def test_beam_search(command, trained):
    model, tokenizer = trained
    result = command("generate", "--beam", 3, "--max-len", 5, "The")
    prompt = tokenizer.encode("The")
    ids = tnp.beam_search(model, np.array([prompt]), 3, max_len=5, forbid=range(4))[0]
    assert result.out == tokenizer.decode([*prompt, *ids]) + "\n"


def test_an_empty_prompt_begins_a_line(command, trained):
    model, tokenizer = trained
    result = command("generate", "--temperature", 0, "--max-len", 6, "")
    ids = most_likely(model, tokenizer.encode("\n"), 6, range(4))
    assert result.out == tokenizer.decode(ids)[1:] + "\n"


def test_characters_the_model_does_not_know(command, trained):
    result = command("generate", "--max-len", 4, "The é!é")
    assert result.code == 0
    assert result.err == "note: the model does not know 'é', '!'\n"
    assert result.out.startswith("The é!é")
    assert "<unk>" not in result.out


def test_the_last_text_run_is_taken(command, trained, tmp_path):
    make_run(tmp_path / "runs" / "text-2", seed=1)
    make_run(tmp_path / "runs" / "later", seed=2, task="digits")
    for seconds, name in enumerate(("text-2", "text", "later")):
        os.utime(tmp_path / "runs" / name / "weights.safetensors", (1000 + seconds, 1000 + seconds))
    options = ("--temperature", 0, "cat")
    assert command("generate", *options).out == command("generate", "--run", "runs/text", *options).out
    assert command("generate", *options).out != command("generate", "--run", "runs/text-2", *options).out


def test_no_run_yet(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = command("generate", "The")
    assert result.code == 1
    assert result.err == (
        "transformer-np generate: no finished run in runs/: train one first (transformer-np train --task text)\n"
    )
    assert "no run folder at none" in command("generate", "--run", "none", "The").err


@pytest.mark.parametrize("name", ["config.json", "vocabulary.json", "weights.safetensors"])
def test_a_damaged_run(command, trained, tmp_path, name):
    path = tmp_path / "runs" / "text" / name
    path.write_bytes(path.read_bytes()[:-10])
    result = command("generate", "The")
    assert result.code == 1
    assert result.err.startswith("transformer-np generate: ")
    assert name in result.err
    path.unlink()
    result = command("generate", "--run", "runs/text", "The")
    assert result.code == 1
    assert result.err == f"transformer-np generate: the run folder runs/text is not complete: it lacks {name}\n"


def test_a_run_whose_parts_do_not_belong_together(command, trained, tmp_path):
    CharacterTokenizer.from_text("abc").save(tmp_path / "runs" / "text" / "vocabulary.json")
    assert (
        "do not belong together: the model has vocabularies of (17,) tokens, the files (7,)"
        in command("generate", "The").err
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--max-len 0 x", "argument --max-len: expected a whole number of at least 1, got '0'"),
        ("--temperature -1 x", "argument --temperature: expected a number of at least 0, got '-1'"),
        ("--temperature nan x", "argument --temperature: expected a number of at least 0, got 'nan'"),
        ("--top-k 0 x", "argument --top-k: expected a whole number of at least 1, got '0'"),
        ("--top-p 0 x", "argument --top-p: expected a number above 0 and at most 1, got '0'"),
        ("--top-p 1.5 x", "argument --top-p: expected a number above 0 and at most 1, got '1.5'"),
        ("--repetition-penalty 0 x", "argument --repetition-penalty: expected a number above 0, got '0'"),
        ("--beam 2 --top-k 3 --seed 1 x", "--beam draws nothing, so it takes no --top-k, --seed"),
        ("--run a --weights b x", "--run and --weights exclude each other"),
        ("--tokenizer t x", "--tokenizer goes with --weights"),
        ("", "the following arguments are required: PROMPT"),
    ],
)
def test_bad_usage(command, trained, arguments, message):
    result = command("generate", *arguments.split())
    assert result.code == 2
    assert result.err.splitlines()[-1] == f"transformer-np generate: error: {message}"
    assert result.out == ""


def test_help_has_an_example_and_fits_a_terminal(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = command("generate", "--help")
    assert result.code == 0
    assert "example:\n  transformer-np generate" in result.out
    assert max(map(len, result.out.splitlines())) <= 80
    assert "generate" in command("--help").out


@pytest.fixture
def tokenizer_file(tmp_path):
    """A tokenizer.json of bytes and some merges."""
    pytest.importorskip("tokenizers")
    tokenizer = SubwordTokenizer.train(["the cat sat on the mat, the cat"] * 3, 280)
    tokenizer.save(tmp_path / "tokenizer.json")
    return tokenizer


def test_a_hugging_face_folder(command, tmp_path, tokenizer_file):
    folder = tmp_path / "gpt2"
    huggingface.save(tnp.GPT(len(tokenizer_file), 16, 2, 1, max_len=12, seed=1), folder)
    result = command("generate", "--weights", folder, "the cat")
    assert result.code == 1
    assert result.err == (f"transformer-np generate: no tokenizer.json in {folder}: give one with --tokenizer\n")
    os.rename(tmp_path / "tokenizer.json", folder / "tokenizer.json")
    config = json.loads((folder / "config.json").read_text())
    ids = tokenizer_file.encode("the cat")
    model = huggingface.load(folder)
    whole = most_likely(model, ids, 5)
    for end in (None, whole[-1]):
        (folder / "config.json").write_text(json.dumps({**config, "bos_token_id": 1, "eos_token_id": end}))
        result = command("generate", "--weights", folder, "--temperature", 0, "--max-len", 5, "the cat")
        assert result.code == 0, result.err
        shown = whole[: whole.index(end, len(ids))] if end is not None else whole
        assert result.out == tokenizer_file.decode(shown) + "\n"
    assert command("generate", "--weights", folder, "").code == 0  # begins with its own begin token
    (folder / "config.json").write_text(json.dumps({**config, "bos_token_id": None}))
    assert (
        "the prompt is empty, and this model has no token to begin with"
        in command("generate", "--weights", folder, "").err
    )


def test_a_t5_answers(command, tmp_path, tokenizer_file):
    model = tnp.T5(len(tokenizer_file), 16, 2, 1, 1, 16, 8, seed=1)
    huggingface.save(model, tmp_path / "t5")
    options = ("--tokenizer", tmp_path / "tokenizer.json", "--max-len", 6, "the cat")
    result = command("generate", "--weights", tmp_path / "t5", *options)
    source = np.array([tokenizer_file.encode("the cat")])
    ids = tnp.greedy(model, source, 6, bos_id=0, eos_id=None)[0]
    config = json.loads((tmp_path / "t5" / "config.json").read_text())
    assert config.get("eos_token_id") not in ids
    assert result.out == tokenizer_file.decode(ids) + "\n"


def test_a_model_that_does_not_write(command, tmp_path):
    huggingface.save(tnp.BERT(20, 8, 2, 1, 8, max_len=9), tmp_path / "bert")
    result = command("generate", "--weights", tmp_path / "bert", "x")
    assert result.code == 1
    assert "holds a BERT, which reads but does not write" in result.err


def test_a_file_of_llama2c(command, tmp_path):
    tokens = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % i for i in range(256)), b" ", b"a", b"b", b"ab", b" ab"]
    pieces = llama2c.Tokenizer(tokens, [0.0] * 261 + [-1.0, -2.0, -3.0])
    content = [struct.pack("<I", 6)]
    content += [struct.pack("<fi", score, len(t)) + t for t, score in zip(tokens, pieces.scores, strict=True)]
    (tmp_path / "tok.bin").write_bytes(b"".join(content))
    model = tnp.Llama(len(tokens), 16, 2, 1, 16, max_len=16, layout="interleaved", eps=1e-5, seed=2)
    llama2c.save(model, tmp_path / "model.bin")
    options = ("generate", "--weights", tmp_path / "model.bin")
    assert "llama2.c's files hold no tokenizer: give its .bin file with --tokenizer" in command(*options, "ab").err
    options += ("--tokenizer", tmp_path / "tok.bin", "--temperature", 0, "--max-len", 5)
    for prompt in ("ab", ""):
        result = command(*options, prompt)
        assert result.code == 0, result.err
        ids = most_likely(model.eval(), pieces.encode(prompt), 5)
        assert 1 not in ids[1:]
        assert result.out == pieces.decode(ids) + "\n"
    (tmp_path / "tok.bin").write_bytes(b"".join(content[:-1]))
    assert "has 263 tokens, the model 264: they do not fit" in command(*options, "ab").err


@pytest.mark.parametrize("letters", [("a", "b", "c"), ("one", "two", "three")])
def test_a_folder_of_ctranslate2(command, tmp_path, letters):
    special = ["<blank>", "<s>", "</s>", "<unk>"]
    tokens, targets = [*special, *letters], [*special, *(letter.upper() for letter in letters)]
    model = tnp.Transformer(7, 7, 8, 2, 1, 1, 16, max_len=12, seed=3)
    ctranslate2.save(model, tmp_path / "model", tokens, targets)
    space = "" if letters[0] == "a" else " "
    options = ("generate", "--weights", tmp_path / "model")
    for extra, decode in ((), tnp.greedy), (("--beam", 2), lambda m, s, n: tnp.beam_search(m, s, 2, max_len=n)):
        result = command(*options, *extra, "--max-len", 6, space.join([letters[2], letters[0]]))
        ids = decode(model, np.array([[6, 4]]), 6)[0]
        assert result.out == space.join(targets[i] for i in ids if i > 3) + "\n"
    assert command(*options, f"{letters[0]}{space}Z").err == "note: the model does not know 'Z'\n"
    assert "the prompt is empty: this model answers a text" in command(*options, "").err
    assert "has vocabularies of its own" in command(*options, "--tokenizer", "t", "a").err


def test_weights_that_are_none(command, trained, tmp_path):
    assert "no file or folder at none" in command("generate", "--weights", "none", "x").err
    assert "runs/text is a run folder: use --run runs/text" in command("generate", "--weights", "runs/text", "x").err
    assert (
        "of Hugging Face's files give the folder, gpt2"
        in command("generate", "--weights", "gpt2/model.safetensors", "x").err
    )
    (tmp_path / "empty").mkdir()
    assert "no config.json in empty" in command("generate", "--weights", "empty", "x").err
