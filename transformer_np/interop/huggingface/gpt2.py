"""GPT-2. Its linear maps are "Conv1D": (d_in, d_out), as ours; queries, keys and values lie side by side in one."""

from ...models import GPT
from .entries import Entry, activation_name, norm, table

MODEL, TYPES = GPT, ("gpt2",)
PREFIX = "transformer."
DEFAULTS = {}
ALIASES = {  # which transformers takes for one another
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
IGNORED = (r".*\.attn\.(masked_)?bias",)  # the causal mask, which old files hold as if it were learned


def read_config(config, tensors):
    """Return the arguments of our GPT."""
    config.must_be(
        scale_attn_weights=True,
        scale_attn_by_inverse_layer_idx=False,
        add_cross_attention=False,
        is_causal=True,
    )
    d_model, vocab_size = config.size("n_embd", 768), config.size("vocab_size", 50257)
    return {
        "vocab_size": vocab_size,
        "d_model": d_model,
        "n_heads": config.size("n_head", 12),
        "n_layers": config.size("n_layer", 12),
        "d_ff": 4 * d_model if config.get("n_inner") is None else config.size("n_inner"),
        "dropout": config.number("resid_pdrop", 0.1),
        "max_len": config.size("n_positions", 1024),
        "tie_embeddings": config.get("tie_word_embeddings", True) is not False,
        "pad_id": config.own_pad_id(vocab_size),
        "activation": config.activation("activation_function", "gelu_new"),
        "eps": config.number("layer_norm_epsilon", 1e-5),
    }


def arguments(model):
    """Return what the model was made with, defaults filled in."""
    return {**model.config, "d_ff": model.layers[0].feed_forward.linear1.d_out}


def write_config(config):
    """Return their config."""
    if config["window"] is not None or not config["bias"]:
        raise ValueError("huggingface.save: GPT-2 has no window and no bias=False")
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": config["vocab_size"],
        "n_positions": config["max_len"],
        "n_embd": config["d_model"],
        "n_layer": config["n_layers"],
        "n_head": config["n_heads"],
        "n_inner": config["d_ff"],
        "activation_function": activation_name(config["activation"]),
        "layer_norm_epsilon": config["eps"],
        "tie_word_embeddings": config["tie_embeddings"],
        "pad_token_id": config["pad_id"],
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), config["dropout"]),
        **dict.fromkeys(("bos_token_id", "eos_token_id")),  # 50256 by default, beyond a small vocabulary
    }


def layout(config):
    """Return {their name: Entry}."""
    d, d_ff, vocab_size = config["d_model"], config["d_ff"], config["vocab_size"]
    entries = table("transformer.wte", "embedding", vocab_size, d)
    entries |= table("transformer.wpe", "positions", config["max_len"], d)
    for i in range(config["n_layers"]):
        theirs, ours = f"transformer.h.{i}", f"layers.{i}"
        maps = {
            "attn.c_attn": ([f"self_attention.w_{x}" for x in "qkv"], d, 3 * d),
            "attn.c_proj": (["self_attention.w_o"], d, d),
            "mlp.c_fc": (["feed_forward.linear1"], d, d_ff),
            "mlp.c_proj": (["feed_forward.linear2"], d_ff, d),
        }
        for name, (parts, d_in, d_out) in maps.items():
            entries[f"{theirs}.{name}.weight"] = Entry(tuple(f"{ours}.{p}.weight" for p in parts), (d_in, d_out))
            entries[f"{theirs}.{name}.bias"] = Entry(tuple(f"{ours}.{p}.bias" for p in parts), (d_out,))
        entries |= norm(f"{theirs}.ln_1", f"{ours}.norm1", d) | norm(f"{theirs}.ln_2", f"{ours}.norm2", d)
    entries |= norm("transformer.ln_f", "final_norm", d)
    return entries | ({} if config["tie_embeddings"] else table("lm_head", "output", vocab_size, d))


def duplicates(config):
    """Return {their name: the one it is tied to}, of tensors that may be there besides."""
    return {"lm_head.weight": "transformer.wte.weight"} if config["tie_embeddings"] else {}
