"""Hugging Face's folders without torch and transformers: what theirs gave, from a file; and what is refused."""

import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import transformer_np as tnp
from transformer_np.interop import huggingface

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
TINY = {"vocab_size": 11, "d_model": 4, "n_heads": 2, "n_layers": 2, "d_ff": 6, "max_len": 7}

# As tests/fixtures/make_huggingface.py made them.
BERT = {"model_type": "bert", "vocab_size": 9, "hidden_size": 4, "num_attention_heads": 2, "num_hidden_layers": 1}
BERT |= {"intermediate_size": 5, "max_position_embeddings": 6}
T5 = {"model_type": "t5", "vocab_size": 9, "d_model": 4, "num_heads": 2, "num_layers": 1, "d_ff": 5, "d_kv": 3}
T5 |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 6}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 64}
VIT = {"model_type": "vit", "image_size": [4, 6], "patch_size": 2, "num_channels": 3, "hidden_size": 4}
VIT |= {"num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 5, "num_labels": 5}


def write(folder, config, tensors):
    """A folder as theirs."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file({name: np.ascontiguousarray(a) for name, a in tensors.items()}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("name", "config", "n_inputs"),
    [
        ("bert", BERT, 3),
        ("t5_v1_0", T5, 4),
        ("t5_v1_1", {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, 4),
        ("t5_v1_1", {**T5, "feed_forward_proj": "gated-gelu", "scale_decoder_outputs": False}, 4),
        ("t5_v1_1", {**T5, "model_type": "mt5", "tie_word_embeddings": True}, 4),  # never scaled, whatever it says
        ("t5_v1_1", {**T5, "model_type": "mt5", "dense_act_fn": "gelu_new", "feed_forward_proj": "gated-relu"}, 4),
        ("t5_v1_0", {**T5, "num_heads": 4, "num_attention_heads": 2}, 4),  # another name, which has the last word
        ("vit", VIT, 1),
    ],
)
def test_outputs_of_transformers(tmp_path, name, config, n_inputs):
    with np.load(FIXTURES / f"huggingface_{name}.npz") as file:
        facts = dict(file)
    tensors = {key.removeprefix("before "): a for key, a in facts.items() if key.startswith("before ")}
    model = huggingface.load(write(tmp_path, config, tensors))
    y = model(*(facts[f"batch {i}"][0] for i in range(n_inputs)))
    for i, part in enumerate(y if isinstance(y, tuple) else (y,)):
        np.testing.assert_allclose(part, facts[f"output {i}"], rtol=0, atol=1e-12 * abs(part).max())


def test_gpt2_keeps_its_matrices_as_we_do(tmp_path):
    """BP-71: W = [[1, 2], [3, 4]] and x = [1, 0] give [1, 2]; the square c_proj, transposed, would give [1, 3]."""
    huggingface.save(tnp.GPT(**{**TINY, "d_model": 2, "n_layers": 1}, dtype="float64"), tmp_path)
    config, tensors = contents(tmp_path)
    tensors["transformer.h.0.attn.c_proj.weight"] = np.array([[1.0, 2.0], [3.0, 4.0]])
    tensors["transformer.h.0.attn.c_attn.weight"] = np.arange(12.0).reshape(2, 6)
    attention = huggingface.load(write(tmp_path, config, tensors)).layers[0].self_attention
    np.testing.assert_array_equal(attention.w_o(np.array([[1.0, 0.0]])), [[1, 2]])
    np.testing.assert_array_equal(attention.w_k(np.array([[1.0, 0.0]])), [[2, 3]])  # the middle third


def test_patches_are_kernels(tmp_path):
    """The kernel of output 1, channel 2, row 0, column 1 meets that pixel of the patch."""
    options = {"image_size": 4, "patch_size": 2, "n_classes": 2, "d_model": 4, "n_heads": 2, "n_layers": 1, "d_ff": 4}
    huggingface.save(tnp.ViT(**options, dtype="float64"), tmp_path)
    config, tensors = contents(tmp_path)
    kernels = np.zeros((4, 3, 2, 2))
    kernels[1, 2, 0, 1] = 1
    tensors["vit.embeddings.patch_embeddings.projection.weight"] = kernels
    image = np.arange(48.0).reshape(1, 3, 4, 4)
    patches = huggingface.load(write(tmp_path, config, tensors)).patches(image)
    np.testing.assert_array_equal(patches[0, :, 1], image[0, 2, ::2, 1::2].ravel())


def contents(folder):
    """The config and the tensors of a folder."""
    from safetensors.numpy import load_file

    return json.loads((folder / "config.json").read_text(encoding="utf-8")), load_file(folder / "model.safetensors")


@pytest.fixture
def gpt(tmp_path):
    """A folder, its config and its tensors."""
    huggingface.save(tnp.GPT(**TINY), tmp_path)
    return tmp_path, *contents(tmp_path)


def test_what_a_mistral_does_not_say_is_not_as_with_a_llama(tmp_path):
    """The defaults of transformers' MistralConfig."""
    huggingface.save(tnp.Llama(**{**TINY, "d_model": 32, "n_heads": 16}, n_kv_heads=8, window=3), tmp_path)
    config, tensors = contents(tmp_path)
    for name in ("sliding_window", "num_key_value_heads", "max_position_embeddings"):
        del config[name]
    ours = huggingface.load(write(tmp_path, config, tensors)).config
    assert (ours["window"], ours["n_kv_heads"], ours["max_len"]) == (4096, 8, 131072)
    assert huggingface.load(write(tmp_path, {**config, "sliding_window": None}, tensors)).config["window"] is None


def test_neighbours_that_turn_become_halves(tmp_path):
    """A Llama in llama2.c's manner has the same outputs in Hugging Face's."""
    model = tnp.Llama(**{**TINY, "d_model": 16}, n_kv_heads=1, layout="interleaved", dtype="float64").eval()
    huggingface.save(model, tmp_path)
    again, ids = huggingface.load(tmp_path), np.array([[1, 5, 10, 2]])
    assert again.config["layout"] == "halves"
    np.testing.assert_allclose(again(ids), model(ids), rtol=0, atol=1e-14)
    assert (again.layers[0].self_attention.w_q.weight.data != model.layers[0].self_attention.w_q.weight.data).any()


def test_one_table_that_is_not_scaled_comes_as_two(tmp_path):
    """As transformers 5 saves a T5 of version 1.1 that it has made itself."""
    huggingface.save(tnp.T5(9, 4, 2, 1, 1, 5, 3), tmp_path)
    config, tensors = contents(tmp_path)
    config |= {"tie_word_embeddings": True, "scale_decoder_outputs": False}
    model = huggingface.load(write(tmp_path, config, tensors))
    assert model.output_scale == 1
    np.testing.assert_array_equal(model.output.weight.data, model.src_embedding.weight.data)


def test_an_mt5_that_was_scaled(tmp_path):
    """transformers 4 scaled the output of a tied mT5, transformers 5 does not; ours would have to be told which."""
    huggingface.save(tnp.T5(9, 4, 2, 1, 1, 5, 3), tmp_path)
    config, tensors = contents(tmp_path)
    config |= {"model_type": "mt5", "tie_word_embeddings": True}
    assert huggingface.load(write(tmp_path, {**config, "transformers_version": "5.0"}, tensors)).output_scale == 1
    with pytest.raises(ValueError, match="an mT5 whose output is scaled"):
        huggingface.load(write(tmp_path, {**config, "transformers_version": "4.57.1"}, tensors))


def test_what_old_files_hold_besides(gpt):
    """The causal mask as if it were learned, and the tied output once more."""
    folder, config, tensors = gpt
    expected = huggingface.load(folder).state_dict()
    bare = {name.removeprefix("transformer."): array for name, array in tensors.items()}
    bare |= {f"h.{i}.attn.bias": np.tril(np.ones((1, 1, 7, 7), "float32")) for i in range(2)}
    bare["h.0.attn.masked_bias"] = np.array(-1e4, "float32")
    state = huggingface.load(write(folder, config, bare)).state_dict()
    assert all((state[name] == expected[name]).all() for name in expected)
    huggingface.load(write(folder, config, {**tensors, "lm_head.weight": tensors["transformer.wte.weight"]}))
    with pytest.raises(ValueError, match=r"lm_head\.weight should be tied to transformer\.wte\.weight, but differs"):
        huggingface.load(write(folder, config, {**tensors, "lm_head.weight": tensors["transformer.wte.weight"] + 1}))


def test_the_first_berts_called_their_norms_otherwise(tmp_path):
    model = tnp.BERT(9, 4, 2, 1, 6, max_len=6)
    huggingface.save(model, tmp_path)
    config, tensors = contents(tmp_path)
    old = {n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): a
           for n, a in tensors.items()}  # fmt: skip
    assert old.keys() != tensors.keys()
    state = huggingface.load(write(tmp_path, config, old)).state_dict()
    assert all((state[name] == array).all() for name, array in model.state_dict().items())


def test_a_pad_token_that_also_ends_texts_is_not_masked(gpt):
    folder, config, tensors = gpt
    for changes, pad_id in (
        ({"pad_token_id": 5}, 5),
        ({"pad_token_id": 5, "eos_token_id": 5}, None),
        ({"pad_token_id": 5, "eos_token_id": [4, 5]}, None),
        ({"pad_token_id": 50257}, None),
    ):
        assert huggingface.load(write(folder, {**config, **changes}, tensors)).pad_id == pad_id


@pytest.mark.parametrize("name", ["bert", "t5"])
def test_without_a_pad_token_no_token_is_padding(tmp_path, name):
    """Where the config says nothing, it is 0 for these two, as transformers has it."""
    huggingface.save(MODELS[name](), tmp_path)
    config, tensors = contents(tmp_path)
    for value, pad_id in ((3, 3), (None, None), (9, None), (-1, None)):
        assert huggingface.load(write(tmp_path, {**config, "pad_token_id": value}, tensors)).pad_id == pad_id
    del config["pad_token_id"]
    assert huggingface.load(write(tmp_path, config, tensors)).pad_id == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt_neox"}, "model_type 'gpt_neox' is not known; there are gpt2, llama, mistral, bert, t5"),
        ({"model_type": None}, "model_type None is not known"),
        ({"model_type": ["gpt2"]}, r"model_type \['gpt2'\] is not known"),
        ({"n_embd": "4"}, "n_embd must be an integer of at least 1, got '4'"),
        ({"n_layer": 10**12}, "more layers than there are tensors"),
        ({"n_layer": True}, "n_layer must be an integer"),
        ({"n_layer": 3}, r"missing transformer\.h\.2\.attn\.c_attn\.bias, .* and 7 more"),
        ({"n_layer": 1}, r"unexpected transformer\.h\.1\.attn\.c_attn\.bias, .* and 7 more"),
        ({"vocab_size": 10**12}, r"wte\.weight must be a float tensor of shape \(1000000000000, 4\), got F32"),
        ({"n_inner": 7}, r"mlp\.c_fc\.bias must be a float tensor of shape \(7,\), got F32 of shape \(6,\)"),
        ({"n_head": 3}, "d_model 4 must be a multiple of n_heads 3"),
        ({"activation_function": "snake"}, "activation_function must be one of gelu_new, .* got 'snake'"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True has no counterpart"),
        ({"layer_norm_epsilon": "small"}, "layer_norm_epsilon must be a number"),
    ],
    ids=str,
)
def test_configs_that_do_not_fit(gpt, changes, message):
    folder, config, tensors = gpt
    with pytest.raises(ValueError, match=message):
        huggingface.load(write(folder, {**config, **changes}, tensors))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'dynamic' have no counterpart"),
        ({"rope_scaling": {"type": "linear"}}, "factor must be a number"),
        ({"rope_scaling": {"type": "linear", "factor": 0.5}}, "factor of scaling must be at least 1, got 0.5"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "'yarn' have no counterpart"),
        ({"rope_parameters": 3}, "rope_parameters must be an object"),
        ({"rope_parameters": {"rope_theta": "x"}}, "rope_theta must be a number"),
        ({"rope_parameters": {"full_attention": {"rope_type": "linear"}}}, "from layer to layer have no counterpart"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor = 0.5 has no counterpart"),
        ({"rope_parameters": LLAMA3, "original_max_position_embeddings": 32}, "= 32 has no counterpart, only 64"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5 has no counterpart"),
        ({"is_causal": False}, "is_causal = False has no counterpart"),
        ({"attention_bias": True}, "attention_bias = True has no counterpart"),
    ],
    ids=str,
)
def test_llamas_that_do_not_fit(tmp_path, changes, message):
    huggingface.save(tnp.Llama(**TINY), tmp_path)
    config, tensors = contents(tmp_path)
    with pytest.raises(ValueError, match=message):
        huggingface.load(write(tmp_path, {**config, **changes}, tensors))


MODELS = {
    "gpt2": lambda: tnp.GPT(**TINY),
    "llama": lambda: tnp.Llama(**TINY, window=3),
    "bert": lambda: tnp.BERT(9, 4, 2, 1, 6, max_len=6),
    "t5": lambda: tnp.T5(9, 4, 2, 1, 1, 5, 3),
    "vit": lambda: tnp.ViT(4, 2, 3, 2, 4, 2, 1, 5),
}


@pytest.mark.parametrize("name", MODELS)
def test_no_config_does_more_than_a_value_error(tmp_path, name):
    """Whatever stands at whichever key, the model is loaded or refused; and no size is taken at its word."""
    huggingface.save(MODELS[name](), tmp_path)
    config, _ = contents(tmp_path)
    refused = 0
    for key in config:
        for strange in (True, -1, 10**30, float("nan"), "x", {"a": 1}):
            (tmp_path / "config.json").write_text(json.dumps({**config, key: strange}), encoding="utf-8")
            try:
                huggingface.load(tmp_path)
            except ValueError:
                refused += 1
    assert refused > 40


def test_types_that_do_not_fit(gpt):
    folder, config, tensors = gpt
    tensors["transformer.ln_f.bias"] = np.zeros(4, "int32")
    with pytest.raises(ValueError, match=r"transformer\.ln_f\.bias must be a float tensor of shape .* got I32"):
        huggingface.load(write(folder, config, tensors))


class Bomb:
    """A pickle that would write a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_pickles_are_not_opened(gpt):
    folder, *_ = gpt
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(folder / "boom")))
    with pytest.raises(ValueError, match=r"pytorch_model\.bin only, which is not read: a pickle can run code"):
        huggingface.load(folder)
    assert not (folder / "boom").exists()


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        huggingface.load(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    with pytest.raises(FileNotFoundError, match=r"no model\.safetensors"):
        huggingface.load(tmp_path)


def header(content):
    text = json.dumps(content).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: b"",
        lambda file: file[:-1],
        lambda file: file[:100],
        lambda file: file + b"\0",
        lambda file: struct.pack("<Q", 2**63) + file[8:],
        lambda file: header({"transformer.wte.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 2**40]}}),
        lambda file: header({"transformer.wte.weight": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 4]}}),
    ],
    ids=["empty", "cut", "cut in the header", "longer", "header", "offsets", "shape"],
)
def test_damaged_weights(gpt, damage):
    folder, *_ = gpt
    path = folder / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        huggingface.load(folder)


@pytest.mark.parametrize("content", ["", "[]", "{", '"gpt2"'])
def test_damaged_configs(gpt, content):
    folder, *_ = gpt
    (folder / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"config\.json (is no JSON|must hold a JSON object)"):
        huggingface.load(folder)


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ({}, ValueError, "has no weight_map"),
        ({"weight_map": {"a": "../model.safetensors"}}, ValueError, "no safetensors file of this folder"),
        ({"weight_map": {"a": "/etc/passwd"}}, ValueError, "no safetensors file of this folder"),
        ({"weight_map": {"a": "part.bin"}}, ValueError, "no safetensors file of this folder"),
        ({"weight_map": {"a": 3}}, ValueError, "no safetensors file of this folder"),
        ({"weight_map": {"a": "part.safetensors"}}, FileNotFoundError, r"no part\.safetensors"),
        ({"weight_map": {"a": "whole.safetensors"}}, ValueError, r"whole\.safetensors is damaged: .*a"),
    ],
    ids=str,
)
def test_damaged_indices(gpt, index, error, message):
    folder, *_ = gpt
    (folder / "model.safetensors").rename(folder / "whole.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(error, match=message):
        huggingface.load(folder)


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (lambda: tnp.layers.Linear(2, 2), TypeError, "got Linear, expected GPT, Llama, BERT, T5, ViT"),
        (lambda: tnp.GPT(**TINY, window=3), ValueError, "GPT-2 has no window"),
        (lambda: tnp.GPT(**TINY, bias=False), ValueError, "no bias=False"),
        (lambda: tnp.Llama(**{**TINY, "max_len": None}), ValueError, "needs a max_len"),
        (lambda: tnp.T5(9, 4, 2, 1, 1, 5, 3, gated=True, activation="gelu"), ValueError, "GELU by tanh"),
    ],
    ids=["kind", "window", "bias", "max_len", "gated gelu"],
)
def test_what_theirs_has_not(tmp_path, model, error, message):
    with pytest.raises(error, match=message):
        huggingface.save(model(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_dtype_of_choice(gpt):
    folder, *_ = gpt
    assert huggingface.load(folder).dtype == "float32"
    model = huggingface.load(folder, dtype="float64")
    assert all(p.data.dtype == "float64" for p in model.parameters())
