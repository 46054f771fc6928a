"""Llama, and Mistral, which is a Llama that looks back a limited way.

Rotary positions turn halves of a head. A Llama of ours that turns neighbours ("interleaved") is written with its
features in their order, and so comes back with layout="halves".
"""

from dataclasses import replace

from ...layers.rotary import SCALINGS
from ...models import Llama
from .entries import Config, activation_name, linear, norm, table

MODEL, TYPES = Llama, ("llama", "mistral")
PREFIX = "model."
DEFAULTS = {  # where they are not those of Llama
    "mistral": {
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    }
}
ALIASES = {}
THEIRS = {"original_max_len": "original_max_position_embeddings"}  # of the numbers that scale rotary positions
IGNORED = (r".*\.rotary_emb\.inv_freq",)  # computed, not learned


def read_config(config, tensors):
    """Return the arguments of our Llama."""
    config.must_be(attention_bias=False, mlp_bias=False, pretraining_tp=1, is_causal=True, partial_rotary_factor=1.0)
    vocab_size, n_heads = config.size("vocab_size", 32000), config.size("num_attention_heads", 32)
    n_kv_heads = n_heads if config.get("num_key_value_heads") is None else config.size("num_key_value_heads")
    d_model = config.size("hidden_size", 4096)
    d_head = d_model // n_heads if config.get("head_dim") is None else config.size("head_dim")
    window = None if config.get("sliding_window") is None else config.size("sliding_window")
    return {
        "vocab_size": vocab_size,
        "d_model": d_model,
        "n_heads": n_heads,
        "n_layers": config.size("num_hidden_layers", 32),
        "d_ff": config.size("intermediate_size", 11008),
        "n_kv_heads": n_kv_heads,
        "max_len": config.size("max_position_embeddings", 2048),
        "tie_embeddings": config.get("tie_word_embeddings", False) is True,
        "pad_id": config.own_pad_id(vocab_size),
        "window": window if config.get("model_type") == "mistral" else None,
        "d_head": d_head,
        **rotary(config),
        "activation": config.activation("hidden_act", "silu"),
        "eps": config.number("rms_norm_eps", 1e-6),
    }


def rotary(config):
    """Return base and scaling of the rotary positions; ValueError where a rule is asked for that ours do not know."""
    new, old = (Config(config.table(key)) for key in ("rope_parameters", "rope_scaling"))  # transformers 5, and 4
    base, scaling = new.number("rope_theta", config.get("rope_theta", 10000.0)), None
    for rule in (new, old):
        rule.must_be(partial_rotary_factor=1.0)
        if any(isinstance(value, dict) for value in rule.content.values()):
            raise ValueError("config.json: rotary positions that differ from layer to layer have no counterpart")
        kind = rule.get("rope_type", rule.get("type", "default"))
        if kind == "default":
            continue
        if kind not in SCALINGS:
            raise ValueError(f"config.json: rotary positions of the type {kind!r:.60} have no counterpart")
        for theirs in THEIRS.values():
            config.must_be(**{theirs: rule.get(theirs)})  # beside the rule, transformers 5 takes it for the rule's
        scaling = {"kind": kind, **{name: rule.number(THEIRS.get(name, name), None) for name in SCALINGS[kind]}}
    return {"rotary_base": base, "rotary_scaling": scaling}


def rope_parameters(base, scaling):
    """Return the same as they write it."""
    if scaling is None:
        return {"rope_type": "default", "rope_theta": base}
    numbers = {THEIRS.get(name, name): value for name, value in scaling.items() if name != "kind"}
    return {"rope_type": scaling["kind"], "rope_theta": base, **numbers}


def arguments(model):
    """Return what the model was made with, defaults filled in."""
    attention, d_ff = model.layers[0].self_attention, model.layers[0].feed_forward.linear1.d_out
    return {**model.config, "d_ff": d_ff, "n_kv_heads": attention.n_kv_heads, "d_head": attention.d_head}


def write_config(config):
    """Return their config."""
    if config["max_len"] is None:
        raise ValueError("huggingface.save: Llama needs a max_len, got None")
    window = config["window"]
    return {
        "model_type": "llama" if window is None else "mistral",
        "architectures": ["LlamaForCausalLM" if window is None else "MistralForCausalLM"],
        "vocab_size": config["vocab_size"],
        "hidden_size": config["d_model"],
        "intermediate_size": config["d_ff"],
        "num_hidden_layers": config["n_layers"],
        "num_attention_heads": config["n_heads"],
        "num_key_value_heads": config["n_kv_heads"],
        "head_dim": config["d_head"],
        "max_position_embeddings": config["max_len"],
        "hidden_act": activation_name(config["activation"]),
        "rms_norm_eps": config["eps"],
        "rope_theta": config["rotary_base"],
        "rope_parameters": rope_parameters(config["rotary_base"], config["rotary_scaling"]),
        "tie_word_embeddings": config["tie_embeddings"],
        "pad_token_id": config["pad_id"],
        **({} if window is None else {"sliding_window": window}),
    }


def layout(config):
    """Return {their name: Entry}."""
    d, f, vocab_size = config["d_model"], config["d_ff"], config["vocab_size"]
    d_q, d_kv = config["n_heads"] * config["d_head"], config["n_kv_heads"] * config["d_head"]
    entries = table("model.embed_tokens", "embedding", vocab_size, d)
    for i in range(config["n_layers"]):
        theirs, ours = f"model.layers.{i}", f"layers.{i}"
        for x, d_in, d_out in (("q", d, d_q), ("k", d, d_kv), ("v", d, d_kv), ("o", d_q, d)):
            entries |= linear(f"{theirs}.self_attn.{x}_proj", f"{ours}.self_attention.w_{x}", d_in, d_out, bias=False)
        for name, part, d_in, d_out in (
            ("gate", "linear_gate", d, f),
            ("up", "linear1", d, f),
            ("down", "linear2", f, d),
        ):
            entries |= linear(f"{theirs}.mlp.{name}_proj", f"{ours}.feed_forward.{part}", d_in, d_out, bias=False)
        entries |= norm(f"{theirs}.input_layernorm", f"{ours}.norm1", d, shift=False)
        entries |= norm(f"{theirs}.post_attention_layernorm", f"{ours}.norm2", d, shift=False)
    entries |= norm("model.norm", "final_norm", d, shift=False)
    if config.get("layout") == "interleaved":
        for name in entries:
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                entries[name] = replace(entries[name], pairs_of=config["d_head"])
    return entries | ({} if config["tie_embeddings"] else table("lm_head", "output", vocab_size, d))


def duplicates(config):
    """Return {their name: the one it is tied to}, of tensors that may be there besides."""
    return {"lm_head.weight": "model.embed_tokens.weight"} if config["tie_embeddings"] else {}
