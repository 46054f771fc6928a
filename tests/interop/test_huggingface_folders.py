"""Hugging Face's folders: models of transformers are loaded here with equal outputs, and ours there."""

import json
import os

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.interop import huggingface
from transformer_np.layers.rotary import rotary_angles

os.environ["HF_HUB_OFFLINE"] = "1"
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = [
    pytest.mark.usefixtures("one_torch_thread"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]

TOLERANCE = {"rtol": 0, "atol": 1e-12}  # float64, outputs of about 1
IDS = np.array([[3, 4, 5, 6, 7], [8, 9, 10, 1, 2]])
TARGETS = np.array([[0, 9, 3], [0, 5, 6]])
IMAGES = np.random.default_rng(2).standard_normal((2, 3, 8, 12))
SEGMENTS = np.array([[0, 0, 1, 1, 1], [0, 1, 1, 1, 1]])


# For each: ours, its options, and the class of transformers. Sizes differ from each other, and from all defaults.
SIZES = {"vocab_size": 11, "d_model": 8, "n_heads": 2, "n_layers": 2, "d_ff": 12, "max_len": 9}
LLAMA = {**SIZES, "n_heads": 4, "n_kv_heads": 2}
T5 = {"vocab_size": 11, "d_model": 8, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 3, "d_ff": 12}
T5 |= {"d_head": 3, "n_buckets": 8, "max_distance": 6}
VIT = {"image_size": (8, 12), "patch_size": 4, "n_classes": 5, "d_model": 8, "n_heads": 2, "n_layers": 2, "d_ff": 12}
CASES = {
    "gpt2": (tnp.GPT, SIZES, "GPT2LMHeadModel"),
    "gpt2 untied": (tnp.GPT, {**SIZES, "tie_embeddings": False, "activation": "relu", "pad_id": 0}, "GPT2LMHeadModel"),
    "llama": (tnp.Llama, LLAMA, "LlamaForCausalLM"),
    "llama tied": (tnp.Llama, {**LLAMA, "tie_embeddings": True, "d_head": 6, "rotary_base": 500.0}, "LlamaForCausalLM"),
    "mistral": (tnp.Llama, {**LLAMA, "window": 3}, "MistralForCausalLM"),
    "bert": (tnp.BERT, {**SIZES, "n_segments": 3}, "BertForPreTraining"),
    "bert words": (tnp.BERT, {**SIZES, "heads": "words", "activation": "relu"}, "BertForMaskedLM"),
    "bert alone": (tnp.BERT, {**SIZES, "heads": None, "eps": 1e-3}, "BertModel"),
    "t5": (tnp.T5, T5, "T5ForConditionalGeneration"),
    "t5 1.1": (
        tnp.T5,
        {**T5, "activation": "gelu_tanh", "gated": True, "tie_embeddings": False},
        "T5ForConditionalGeneration",
    ),
    "t5 gated silu": (tnp.T5, {**T5, "activation": "silu", "gated": True}, "T5ForConditionalGeneration"),
    "vit": (tnp.ViT, VIT, "ViTForImageClassification"),
}
every_case = pytest.mark.parametrize("name", CASES)


def ours(name):
    """A model of ours with weights away from zeros and ones."""
    make, options, _ = CASES[name]
    model = make(**options, dtype="float64").eval()
    rng = np.random.default_rng(4)
    for p in model.parameters():
        p.data += 0.2 * rng.standard_normal(p.shape)
    return model


def our_outputs(model):
    """What forward returns, as a tuple."""
    if isinstance(model, tnp.T5):
        y = model(IDS, TARGETS)
    elif isinstance(model, tnp.BERT):
        y = model(IDS, SEGMENTS)
    else:
        y = model(IMAGES if isinstance(model, tnp.ViT) else IDS)
    return y if isinstance(y, tuple) else (y,)


def their_outputs(twin):
    """The same of theirs."""
    for module in twin.modules():  # some parts of theirs compute in float32, whatever they are given
        if type(module).__name__ in ("T5LayerNorm", "MT5LayerNorm", "LlamaRMSNorm", "MistralRMSNorm"):
            module.forward = norm_in_float64.__get__(module)
        if type(module).__name__ in ("LlamaRotaryEmbedding", "MistralRotaryEmbedding"):
            module.forward = rotary_in_float64.__get__(module)
    kind = type(twin).__name__
    if kind.startswith(("T5", "MT5")):
        y = twin(input_ids=torch.tensor(IDS), decoder_input_ids=torch.tensor(TARGETS)).logits
    elif kind.startswith("ViT"):
        y = twin(pixel_values=torch.tensor(IMAGES)).logits
    elif kind.startswith("Bert"):
        y = twin(input_ids=torch.tensor(IDS), token_type_ids=torch.tensor(SEGMENTS))
        if kind == "BertForPreTraining":
            return tuple(part.detach().numpy() for part in (y.prediction_logits, y.seq_relationship_logits))
        y = y.logits if kind == "BertForMaskedLM" else y.last_hidden_state
    else:
        y = twin(input_ids=torch.tensor(IDS)).logits
    return (y.detach().numpy(),)


def norm_in_float64(self, x):
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def rotary_in_float64(self, x, position_ids):
    d_head, base = self.config.head_dim, self.config.rope_parameters["rope_theta"]
    frequencies = base ** (-torch.arange(0, d_head, 2, dtype=torch.float64) / d_head)
    angles = (position_ids[..., None] * frequencies).repeat(1, 1, 2)
    return angles.cos(), angles.sin()


def load_theirs(name, folder):
    import transformers

    kind = getattr(transformers, CASES[name][2])
    attention = "eager" if "t5" in name else "sdpa"  # most have an "eager" one with a softmax in float32
    return kind.from_pretrained(
        folder, dtype=torch.float64, attn_implementation=attention, output_loading_info=True, local_files_only=True
    )


def assert_close(a, b, about=""):
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, **TOLERANCE, err_msg=about)


@every_case
def test_ours_are_loaded_by_transformers_with_equal_outputs(tmp_path, name):
    model = ours(name)
    huggingface.save(model, tmp_path)
    twin, info = load_theirs(name, tmp_path)
    pooler = {"pooler.dense.weight", "pooler.dense.bias"} if name == "bert alone" else set()
    assert set(info["missing_keys"]) == pooler
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    assert_close(their_outputs(twin.eval()), our_outputs(model))


@every_case
def test_theirs_are_loaded_here_with_equal_outputs(tmp_path, name):
    """Their model, made by them and moved away from its first weights, saved by them."""
    huggingface.save(ours(name), tmp_path / "seed")
    twin, _ = load_theirs(name, tmp_path / "seed")
    with torch.no_grad():
        generator = torch.Generator().manual_seed(3)
        for p in twin.parameters():
            p += 0.1 * torch.randn(p.shape, generator=generator, dtype=p.dtype)
    twin.save_pretrained(tmp_path / "theirs")
    model = huggingface.load(tmp_path / "theirs")
    assert model.dtype == "float64"
    assert_close(our_outputs(model), their_outputs(twin.eval()))


@every_case
def test_there_and_back(tmp_path, name):
    model = ours(name)
    huggingface.save(model, tmp_path)
    again = huggingface.load(tmp_path)
    assert type(again) is type(model)
    state, expected = again.state_dict(), model.state_dict()
    assert state.keys() == expected.keys()
    for key in state:
        np.testing.assert_array_equal(state[key], expected[key])
    huggingface.save(again, tmp_path / "again")
    for file in ("config.json", "model.safetensors"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / file).read_bytes()


def changed(value):
    """Another value of the same kind; None where there is none to think of."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + (1 if isinstance(value, int) else 0.25)
    if isinstance(value, str):
        return "gelu" if value == "relu" else "relu"
    return 1 if value is None else None


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "bert", "t5", "t5 gated silu", "vit"])
def test_every_field_of_their_config_is_honoured_or_refused(tmp_path, name):
    """Each field in turn gets another value. What both sides then still load, gives equal outputs."""
    huggingface.save(ours(name), tmp_path / "seed")
    twin, _ = load_theirs(name, tmp_path / "seed")
    twin.save_pretrained(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    fields = {key: changed(value) for key, value in content.items() if changed(value) is not None}
    fields |= {alias: changed(content[key]) for alias, key in twin.config.attribute_map.items() if key in content}
    fields |= {"is_causal": False}
    fields.pop("pad_token_id", None)  # ours leaves padding out without being told so
    equal, refused = 0, 0
    for key, value in fields.items():
        (tmp_path / "config.json").write_text(json.dumps({**content, key: value}), encoding="utf-8")
        try:
            model = huggingface.load(tmp_path)
        except ValueError:
            refused += 1
            continue
        other = made_by_theirs(twin, {**content, key: value})
        if other is not None:
            assert_close(our_outputs(model), their_outputs(other), key)
            equal += 1
    assert min(equal, refused) > 5


def made_by_theirs(twin, content):
    """Their model of another config with the weights of this one; None where they do not fit."""
    try:
        config = type(twin.config).from_dict(content)
        attention = twin.config._attn_implementation
        other = type(twin)._from_config(config, attn_implementation=attention, dtype=torch.float64)
        other.load_state_dict(twin.state_dict())
    except Exception:  # theirs refuses in many ways
        return None
    return other.eval()


def test_an_mt5_made_by_transformers(tmp_path):
    """It is tied, and says so, but nothing is scaled, whereas a T5 that is tied is scaled."""
    import transformers

    sizes = {"d_model": 8, "d_kv": 3, "num_heads": 2, "num_layers": 2, "d_ff": 12, "vocab_size": 11}
    twin = transformers.MT5ForConditionalGeneration(transformers.MT5Config(**sizes)).double().eval()
    twin.save_pretrained(tmp_path)
    assert_close(our_outputs(huggingface.load(tmp_path)), their_outputs(twin))


def test_sharded_by_transformers(tmp_path):
    huggingface.save(ours("gpt2"), tmp_path / "whole")
    twin, _ = load_theirs("gpt2", tmp_path / "whole")
    twin.save_pretrained(tmp_path / "parts", max_shard_size="4KB")
    assert len(list((tmp_path / "parts").glob("*.safetensors"))) > 2
    assert_close(our_outputs(huggingface.load(tmp_path / "parts")), our_outputs(ours("gpt2")))


def test_sharded_by_us(tmp_path):
    huggingface.save(ours("gpt2"), tmp_path)
    huggingface.save(ours("gpt2"), tmp_path, shard_bytes=4000)  # over a whole one, which must not be read any more
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    twin, info = load_theirs("gpt2", tmp_path)
    assert not info["missing_keys"]
    assert_close(their_outputs(twin.eval()), our_outputs(ours("gpt2")))
    assert_close(our_outputs(huggingface.load(tmp_path)), our_outputs(ours("gpt2")))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_half_precision_becomes_float32(tmp_path, dtype):
    """Widening is exact, so the numbers are theirs to the last bit."""
    huggingface.save(ours("llama"), tmp_path / "seed")
    twin, _ = load_theirs("llama", tmp_path / "seed")
    twin = twin.to(getattr(torch, dtype))
    twin.save_pretrained(tmp_path / "half")
    model = huggingface.load(tmp_path / "half")
    assert model.dtype == "float32"
    expected = twin.model.layers[1].mlp.up_proj.weight.detach().float().numpy().T
    np.testing.assert_array_equal(model.layers[1].feed_forward.linear1.weight.data, expected)


@pytest.mark.parametrize(
    ("name", "kind"), [("gpt2", "GPT2Model"), ("bert alone", "BertModel"), ("llama tied", "LlamaModel")]
)
def test_bodies_without_a_head_lack_the_prefix(tmp_path, name, kind):
    """As the files of gpt2 itself do, and of sentence-transformers."""
    huggingface.save(ours(name), tmp_path / "seed")
    import transformers

    body = getattr(transformers, kind).from_pretrained(tmp_path / "seed", dtype=torch.float64)
    body.save_pretrained(tmp_path / "body")
    assert_close(our_outputs(huggingface.load(tmp_path / "body")), our_outputs(ours(name)))


SCALINGS = {
    "linear": {"kind": "linear", "factor": 4.0},
    "llama3": {  # of the 8 frequencies some stay, some are slowed down, and one lies in between
        "kind": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_len": 64,
    },
}


@pytest.mark.parametrize("scaling", SCALINGS.values(), ids=SCALINGS)
def test_scaled_rotary_positions_turn_as_those_of_transformers(tmp_path, scaling):
    """Their frequencies are float32's: so 1e-6 for them, and for the logits of a float32 model 1e-4."""
    import transformers

    sizes = {**LLAMA, "d_model": 64, "max_len": 256}
    model = tnp.Llama(**sizes, rotary_scaling=scaling).eval()
    rng = np.random.default_rng(4)
    for p in model.parameters():
        p.data += (0.1 * rng.standard_normal(p.shape)).astype("float32")
    huggingface.save(model, tmp_path)
    twin = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, local_files_only=True)
    frequencies = rotary_angles(1, 16, scaling=scaling)  # (8,): the angles at position 1
    np.testing.assert_allclose(frequencies, twin.model.rotary_emb.inv_freq.numpy(), rtol=1e-6)
    plain = rotary_angles(1, 16)
    assert (frequencies < plain).any()
    ids = rng.integers(0, 11, (2, 200))
    theirs = twin(input_ids=torch.tensor(ids)).logits.detach().numpy()
    np.testing.assert_allclose(model(ids), theirs, rtol=0, atol=1e-4 * abs(theirs).max())
    again = huggingface.load(tmp_path)
    assert again.config["rotary_scaling"] == scaling
    np.testing.assert_array_equal(again.eval()(ids), model(ids))
