"""T5, both versions, and mT5. The first layer of each stack holds the position bias that all of its layers use."""

from ...models import T5
from .entries import activation_name, linear, norm, table

MODEL, TYPES = T5, ("t5", "mt5")
PREFIX = ""
DEFAULTS = {  # where they are not those of T5
    "mt5": {"vocab_size": 250112, "d_ff": 1024, "num_layers": 8, "num_heads": 6, "feed_forward_proj": "gated-gelu"}
}
ALIASES = {  # which transformers takes for one another
    "hidden_size": "d_model",
    "head_dim": "d_kv",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
}
# A bias of cross-attention that the first releases hold, and never use.
IGNORED = (r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",)


def read_config(config, tensors):
    """Return the arguments of our T5."""
    config.must_be(is_causal=True, is_encoder_decoder=True)
    gate, _, activation = config.text("feed_forward_proj", "relu").rpartition("-")
    if gate not in ("", "gated"):
        raise ValueError(f"config.json: feed_forward_proj = {config.get('feed_forward_proj')!r:.60} has no counterpart")
    if gate and activation == "gelu":
        activation = "gelu_new"  # as T5 means it
    scaled = is_scaled(config)
    if not scaled and "shared.weight" in tensors:
        tensors.setdefault("lm_head.weight", tensors["shared.weight"])  # one table, but unscaled: ours has it twice
    n_layers, vocab_size = config.size("num_layers", 6), config.size("vocab_size", 32128)
    return {
        "vocab_size": vocab_size,
        "d_model": config.size("d_model", 512),
        "n_heads": config.size("num_heads", 8),
        "n_encoder_layers": n_layers,
        "n_decoder_layers": n_layers if config.get("num_decoder_layers") is None else config.size("num_decoder_layers"),
        "d_ff": config.size("d_ff", 2048),
        "d_head": config.size("d_kv", 64),
        "dropout": config.number("dropout_rate", 0.1),
        "n_buckets": config.size("relative_attention_num_buckets", 32),
        "max_distance": config.size("relative_attention_max_distance", 128),
        "activation": config.activation("dense_act_fn", activation),
        "gated": bool(config.get("is_gated_act", gate)),
        "tie_embeddings": scaled,
        "pad_id": config.pad_id(vocab_size, 0),
        "eps": config.number("layer_norm_epsilon", 1e-6),
    }


def is_scaled(config):
    """Say whether the decoder's output is scaled, which tells the versions apart, and so whether it is tied.

    transformers 4 says it by tie_word_embeddings; transformers 5 by scale_decoder_outputs, and of tie_word_embeddings
    always says true. An mT5 is of version 1.1, and scaled by transformers 4 alone, if it was told to tie.
    """
    tied = config.get("tie_word_embeddings", True) is not False
    if config.get("model_type") != "mt5":
        return bool(config.get("scale_decoder_outputs", tied))
    if tied and config.text("transformers_version", "").startswith("4"):
        raise ValueError("config.json: an mT5 whose output is scaled (tie_word_embeddings) has no counterpart")
    return False


def arguments(model):
    """Return what the model was made with."""
    return model.config


def write_config(config):
    """Return their config."""
    activation = activation_name(config["activation"])
    if config["gated"]:
        if activation == "gelu":
            raise ValueError("huggingface.save: a gated T5 has its GELU by tanh: activation='gelu_tanh'")
        activation = f"gated-{'gelu' if activation == 'gelu_new' else activation}"
    return {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "vocab_size": config["vocab_size"],
        "d_model": config["d_model"],
        "d_kv": config["d_head"],
        "d_ff": config["d_ff"],
        "num_layers": config["n_encoder_layers"],
        "num_decoder_layers": config["n_decoder_layers"],
        "num_heads": config["n_heads"],
        "relative_attention_num_buckets": config["n_buckets"],
        "relative_attention_max_distance": config["max_distance"],
        "dropout_rate": config["dropout"],
        "layer_norm_epsilon": config["eps"],
        "feed_forward_proj": activation,
        "tie_word_embeddings": config["tie_embeddings"],
        "pad_token_id": config["pad_id"],
        "decoder_start_token_id": config["pad_id"],
        "is_encoder_decoder": True,
    }


def layout(config):
    """Return {their name: Entry}."""
    d, f, d_all = config["d_model"], config["d_ff"], config["n_heads"] * config["d_head"]
    entries = table("shared", "src_embedding", config["vocab_size"], d)

    def attention(theirs, ours):
        found = {}
        for x in "qkvo":
            d_in, d_out = (d_all, d) if x == "o" else (d, d_all)
            found |= linear(f"{theirs}.{x}", f"{ours}.w_{x}", d_in, d_out, bias=False)
        return found

    for side in ("encoder", "decoder"):
        position_bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
        entries |= table(position_bias, f"{side}.position_bias", config["n_buckets"], config["n_heads"])
        for i in range(config[f"n_{side}_layers"]):
            theirs, ours = f"{side}.block.{i}.layer", f"{side}.layers.{i}"
            entries |= attention(f"{theirs}.0.SelfAttention", f"{ours}.self_attention")
            if side == "decoder":
                entries |= attention(f"{theirs}.1.EncDecAttention", f"{ours}.cross_attention")
            last = 1 if side == "encoder" else 2
            maps = [("wo", "linear2", f, d)]
            maps += [("wi_0", "linear_gate", d, f), ("wi_1", "linear1", d, f)] if config["gated"] else []
            maps += [] if config["gated"] else [("wi", "linear1", d, f)]
            for name, part, d_in, d_out in maps:
                place = f"{theirs}.{last}.DenseReluDense.{name}"
                entries |= linear(place, f"{ours}.feed_forward.{part}", d_in, d_out, bias=False)
            for j in range(last + 1):
                entries |= norm(f"{theirs}.{j}.layer_norm", f"{ours}.norm{j + 1}", d, shift=False)
        entries |= norm(f"{side}.final_layer_norm", f"{side}.final_norm", d, shift=False)
    return entries | ({} if config["tie_embeddings"] else table("lm_head", "output", config["vocab_size"], d))


def duplicates(config):
    """Return {their name: the one it is tied to}, of tensors that may be there besides."""
    tied = ["encoder.embed_tokens", "decoder.embed_tokens"] + ["lm_head"] * config["tie_embeddings"]
    return {f"{name}.weight": "shared.weight" for name in tied}
