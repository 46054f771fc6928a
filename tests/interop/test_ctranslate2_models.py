"""CTranslate2's models, read without CTranslate2: the same names from real weights, and refusals of damaged files."""

import itertools
import json
import struct
from pathlib import Path

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.interop import ctranslate2

HERE = Path(__file__).parent
FOLDER = HERE.parents[2] / "shared" / "data" / "aren-transliteration"
NAMES = json.loads((HERE / "ctranslate2_names.json").read_text(encoding="utf-8"))
with_weights = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs ../shared/data")


@pytest.fixture(scope="module")
def transliteration():
    model = ctranslate2.load(FOLDER)
    return model, *ctranslate2.load_vocabularies(FOLDER)


def ids_of(texts, tokens):
    ids = np.zeros((len(texts), max(map(len, texts))), int)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = [tokens.index(character) for character in text]
    return ids


def words_of(ids, tokens):
    return ["".join(tokens[i] for i in row if i > 2) for row in ids]


@with_weights
def test_ten_names_come_out_as_from_ctranslate2(transliteration):
    model, source, target = transliteration
    ids = tnp.greedy(model, ids_of(NAMES["names"], source), max_len=30)
    assert words_of(ids, target) == [result["hypotheses"][0] for result in NAMES["greedy"]]


@with_weights
def test_beam_search_finds_the_same_names(transliteration):
    """All four of each, when it stops as CTranslate2 does; and the same best ones when it searches on to the end."""
    model, source, target = transliteration
    ids = ids_of(NAMES["names"], source)
    settings = {"beam_size": 4, "length_penalty": 1.0, "length_rule": "power", "max_len": 30}
    found, scores = tnp.beam_search(model, ids, n_best=4, early_stopping=True, return_scores=True, **settings)
    for row, row_scores, result in zip(found, scores, NAMES["beam 4"], strict=True):
        assert words_of(row, target) == result["hypotheses"]
        np.testing.assert_allclose(row_scores, result["scores"], rtol=0, atol=2e-5)
    best = words_of(tnp.beam_search(model, ids, **settings), target)
    assert best == [result["hypotheses"][0] for result in NAMES["beam 4"]]


@with_weights
def test_every_hypothesis_has_the_score_that_ctranslate2_gives_it(transliteration):
    """A score is the mean log-probability of the tokens, </s> included; both compute in float32."""
    model, source, target = transliteration
    for name, result in zip(NAMES["names"], NAMES["beam 4"], strict=True):
        words = [[1, *(target.index(c) for c in word), 2] for word in result["hypotheses"]]
        for word, score in zip(words, result["scores"], strict=True):
            logits = model(ids_of([name], source), np.array([word[:-1]]))[0].astype("float64")
            log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            np.testing.assert_allclose(log_p[np.arange(len(word) - 1), word[1:]].mean(), score, rtol=0, atol=2e-5)


@with_weights
def test_what_the_model_is(transliteration):
    model, source, target = transliteration
    assert (len(source), len(target)) == (51, 43)
    assert source[:3] == target[:3] == ["<blank>", "<s>", "</s>"]
    assert source[-1] == target[-1] == "<unk>"
    assert model.n_parameters() == 182_731
    assert not model.training


@with_weights
def test_it_can_be_trained_on_and_saved(transliteration, tmp_path):
    """A few steps of hand-written backprop on the real weights, towards other spellings: the loss falls."""
    _, source, target = transliteration
    model = ctranslate2.load(FOLDER, dtype="float64").train()
    src = ids_of(["برلين", "نيوتن"], source)
    words = ids_of(["baarlyn", "newton."], target)
    tgt_in = np.concatenate([np.full((2, 1), 1), words], 1)
    tgt_out = np.concatenate([words, np.full((2, 1), 2)], 1)
    step = tnp.TrainStep(model, tnp.CrossEntropy(ignore_index=0), tnp.Adam(model.parameters(), lr=1e-3))
    losses = [float(step(src, tgt_in, tgt_out)) for _ in range(5)]
    assert all(later < earlier for earlier, later in itertools.pairwise(losses))
    model.save(tmp_path / "names.safetensors")
    logits = tnp.load(tmp_path / "names.safetensors").eval()(src, tgt_in)
    np.testing.assert_array_equal(logits, model.eval()(src, tgt_in))


def text(name):
    return struct.pack("<H", len(name.encode()) + 1) + name.encode() + b"\0"


def item(name, array, version=6):
    """A variable as the file has it."""
    types = {"float32": 0, "int8": 1, "int16": 2}
    start = text(name) + struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
    if version < 4:
        return start + struct.pack("<BI", array.itemsize, array.size) + array.tobytes()
    return start + struct.pack("<BI", types[array.dtype.name], array.nbytes) + array.tobytes()


def content(variables, aliases=(), version=6, name="TransformerSpec", n=None):
    """A whole file."""
    body = b"".join(item(key, value, version) for key, value in variables.items())
    start = struct.pack("<I", version) + text(name) + struct.pack("<II", 7, len(variables) if n is None else n)
    tail = struct.pack("<I", len(aliases)) + b"".join(text(a) + text(b) for a, b in aliases)
    return start + body + (tail if version >= 3 else b"")


def tiny(d=8, f=12, vocab=7, norm=True):
    """The variables of a model with one layer a side."""
    rng = np.random.default_rng(5)
    shapes = {"encoder/embeddings_0/weight": (vocab, d), "decoder/embeddings/weight": (vocab, d)}
    shapes |= {"decoder/projection/weight": (vocab, d), "decoder/projection/bias": (vocab,)}
    for side in ("encoder", "decoder"):
        parts = {"self_attention/linear_0": (3 * d, d), "self_attention/linear_1": (d, d)}
        if side == "decoder":
            parts |= {f"attention/linear_{i}": ((1, 2, 1)[i] * d, d) for i in range(3)}
        parts |= {"ffn/linear_0": (f, d), "ffn/linear_1": (d, f)}
        for part, shape in parts.items():
            shapes[f"{side}/layer_0/{part}/weight"], shapes[f"{side}/layer_0/{part}/bias"] = shape, shape[:1]
        norms = {f"layer_0/{part.split('/')[0]}" for part in parts}
        norms = [f"{side}/{part}/layer_norm" for part in sorted(norms)] + [f"{side}/layer_norm"] * norm
        shapes |= {f"{part}/{kind}": (d,) for part in norms for kind in ("gamma", "beta")}
    variables = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    flags = {"num_heads": np.int16(2), "pre_norm": np.int8(norm), "activation": np.int8(3)}
    flags["scale_embeddings"] = np.int8(1)
    return variables | {f"{side}/{n}": np.array(v) for side in ("encoder", "decoder") for n, v in flags.items()}


def write(folder, *args, **kwargs):
    (folder / "model.bin").write_bytes(content(*args, **kwargs))
    return folder


def test_a_file_of_today(tmp_path):
    model = ctranslate2.load(write(tmp_path, tiny()), max_len=20)
    assert model.config["activation"] == "gelu"
    assert model.config["n_heads"] == 2
    variables = tiny()
    stacked = variables["decoder/layer_0/attention/linear_1/weight"]
    state = model.state_dict()
    np.testing.assert_array_equal(state["decoder.layers.0.cross_attention.w_v.weight"], stacked[8:].T)
    np.testing.assert_array_equal(state["src_embedding.weight"], variables["encoder/embeddings_0/weight"])


def test_aliases_are_tied_weights(tmp_path):
    variables = tiny()
    del variables["decoder/projection/weight"]
    aliases = [("decoder/projection/weight", "decoder/embeddings/weight")]
    model = ctranslate2.load(write(tmp_path, variables, aliases))
    assert model.config["tie_embeddings"] == "target"
    del variables["encoder/embeddings_0/weight"]
    model = ctranslate2.load(
        write(tmp_path, variables, [*aliases, ("encoder/embeddings_0/weight", "decoder/embeddings/weight")])
    )
    assert model.config["tie_embeddings"] is True
    assert model.output.weight is model.src_embedding.weight


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_random_models_of_todays_ctranslate2(tmp_path, pre_norm, shared):
    """Written by CTranslate2, and scored by it: the log-probability of every token of a given target."""
    package = pytest.importorskip("ctranslate2")
    tokens = ["<blank>", "<s>", "</s>", "<unk>", *"abc"]
    spec = package.specs.TransformerSpec.from_config(
        (1, 1), 2, pre_norm=pre_norm, activation=package.specs.common_spec.Activation.GELU
    )
    variables = tiny(norm=pre_norm)
    if shared:
        variables["decoder/projection/weight"] = variables["decoder/embeddings/weight"]
    for name, value in variables.items():
        part = spec
        *path, last = name.replace("linear_", "linear/" if "ffn" not in name else "linear_").split("/")
        for key in path:
            key, _, i = key.partition("_") if key.startswith(("layer_0", "embeddings_")) else (key, "", "")
            part = part[int(key)] if key.isdigit() else getattr(part, key)
            part = part[int(i)] if i else part
        if value.ndim:
            setattr(part, last, value)
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.validate()
    spec.optimize()
    spec.save(str(tmp_path))
    theirs = package.Translator(str(tmp_path), compute_type="float32")
    ours = ctranslate2.load(tmp_path)
    assert ctranslate2.load_vocabularies(tmp_path) == (tokens, tokens)
    (result,) = theirs.score_batch([list("abcab")], [list("bca")])
    logits = ours(np.array([[4, 5, 6, 4, 5]]), np.array([[1, 5, 6, 4]]))[0].astype("float64")
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    np.testing.assert_allclose(log_p[range(4), [5, 6, 4, 2]], result.log_probs, rtol=0, atol=1e-4)  # logits up to 10


def changed(**changes):
    return {**tiny(), **{name.replace("__", "/"): value for name, value in changes.items()}}


def without(name):
    return {key: value for key, value in tiny().items() if key != name}


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (without("encoder/embeddings_0/weight"), "encoder/embeddings/weight is missing"),
        (without("decoder/layer_0/ffn/linear_1/bias"), "linear_1/bias must have shape .8,., got nothing"),
        (changed(decoder__layer_norm__beta=np.ones(9, "float32")), r"beta must have shape \(8,\), got \(9,\)"),
        (changed(encoder__strange=np.ones(2, "float32")), "no place for encoder/strange"),
        (changed(encoder__layer_3__x=np.ones(2, "float32")), "encoder/layer_1/self_attention/linear_0/weight must"),
        (changed(decoder__layer_norm__beta=np.ones(8, "int8")), "without quantization"),
        (changed(decoder__alibi=np.array(1, "int8")), "decoder/alibi = 1 has no counterpart"),
        (changed(decoder__scale_embeddings=np.array(0, "int8")), "scale_embeddings = 0 has no counterpart"),
        (changed(decoder__flag=np.array(0, "int8")), "decoder/flag = 0 has no counterpart"),
        (changed(decoder__activation=np.array(0, "int8")), "activation must be there, and the same"),
        (changed(decoder__num_heads=np.array(0, "int16")), "num_heads must be there, and the same"),
        (without("decoder/num_heads"), "num_heads must be there"),
    ],
)
def test_what_is_missing_or_does_not_fit(tmp_path, variables, message):
    with pytest.raises(ValueError, match=message):
        ctranslate2.load(write(tmp_path, variables))


def huge(file):
    """The first variable claims 4,000,000,000 rows, with as many bytes as that would have, modulo 2**32."""
    name = text("encoder/embeddings_0/weight")
    start = file.index(name) + len(name)
    claim = struct.pack("<IIBI", 4_000_000_000, 8, 0, 4_000_000_000 * 32 % 2**32)
    return file[: start + 1] + claim + file[start + 14 :]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: b"", "version needs 4 bytes and 0 are left"),
        (lambda file: b"\x07" + file[1:], "version 7 is none of 2 to 6"),
        (lambda file: file[:100], "are left: the file is cut short"),
        (lambda file: file[:-1], "cut short"),
        (lambda file: file + b"\0", "1 bytes are left over"),
        (lambda file: file.replace(b"weight\0", b"weights", 1), "does not end in a zero byte"),
        (lambda file: file.replace(b"weight\0", b"we\xffght\0", 1), "no UTF-8"),
        (lambda file: file.replace(b"encoder/layer_norm/gamma", b"decoder/layer_norm/gamma"), "comes twice"),
        (huge, "4000000000, 8"),
        (lambda file: content(tiny(), n=2**32 - 1), "does not end in a zero byte"),
        (lambda file: content(tiny(), [("a", "b")]), "alias a for b"),
        (lambda file: content({"x": np.ones(2, "int8")}).replace(b"\1\2\0\0\0\1\1", b"\x09\2\0\0\0\1\1"), "type 9"),
    ],
)
def test_damaged_files(tmp_path, damage, message):
    write(tmp_path, tiny())
    file = damage((tmp_path / "model.bin").read_bytes())
    (tmp_path / "model.bin").write_bytes(file)
    with pytest.raises(ValueError, match=message):
        ctranslate2.load(tmp_path)


@pytest.mark.parametrize("version", [2, 6])
def test_no_damage_does_more_than_a_value_error(tmp_path, version):
    """Cut anywhere, or with any byte of the first variables' headers changed, a file is read or refused."""
    variables = tiny()
    if version == 2:
        variables = {name: value for name, value in variables.items() if value.ndim}
    good = content(variables, version=version, name="TransformerBase")
    rng = np.random.default_rng(1)
    damaged = [good[:n] for n in rng.integers(0, len(good), 20)]
    for _ in range(70):
        file = bytearray(good)
        file[int(rng.integers(0, 80 if rng.random() < 0.5 else len(good)))] = int(rng.integers(256))
        damaged.append(bytes(file))
    refused = 0
    for file in damaged:
        (tmp_path / "model.bin").write_bytes(file)
        try:
            ctranslate2.load(tmp_path)
        except ValueError:
            refused += 1
    assert refused >= 20


def test_no_file_and_no_vocabulary(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"model\.bin"):
        ctranslate2.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="no source_vocabulary"):
        ctranslate2.load_vocabularies(tmp_path)


def test_a_vocabulary_is_utf8_and_keeps_its_spaces(tmp_path):
    (tmp_path / "shared_vocabulary.txt").write_bytes("<blank>\n<s>\n</s>\né\n \n\u2028\n".encode())
    expected = ["<blank>", "<s>", "</s>", "é", " ", "\u2028", "<unk>"]
    assert ctranslate2.load_vocabularies(tmp_path) == (expected, expected)


@pytest.mark.parametrize("config", ["[]", '{"layer_norm_epsilon": "small"}', '{"layer_norm_epsilon": -1}', "{"])
def test_a_config_that_is_none(tmp_path, config):
    (write(tmp_path, tiny()) / "config.json").write_text(config, encoding="utf-8")
    with pytest.raises(ValueError, match=r"config\.json"):
        ctranslate2.load(tmp_path)


def test_the_eps_of_the_norms_comes_from_the_config(tmp_path):
    (write(tmp_path, tiny()) / "config.json").write_text('{"layer_norm_epsilon": 0.25}', encoding="utf-8")
    assert ctranslate2.load(tmp_path).encoder.layers[0].norm1.eps == 0.25


def test_a_vocabulary_that_is_no_list(tmp_path):
    (tmp_path / "shared_vocabulary.json").write_text('{"a": 1}', encoding="utf-8")
    with pytest.raises(ValueError, match="expected a list of tokens"):
        ctranslate2.load_vocabularies(tmp_path)
