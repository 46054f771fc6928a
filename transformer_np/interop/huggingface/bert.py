"""BERT, with the heads of its training, with the one for words, or with none."""

from ...models import BERT
from .entries import Entry, activation_name, linear, norm, table

MODEL, TYPES = BERT, ("bert",)
PREFIX = "bert."
DEFAULTS = ALIASES = {}
IGNORED = (r".*embeddings\.position_ids",)  # 0, 1, 2 ..
ARCHITECTURES = {"pretraining": "BertForPreTraining", "words": "BertForMaskedLM", None: "BertModel"}


def read_config(config, tensors):
    """Return the arguments of our BERT; which heads it gets is seen from the tensors."""
    config.must_be(position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    heads = "words" if any(name.startswith("cls.predictions.") for name in tensors) else None
    if any(name.startswith("cls.seq_relationship.") for name in tensors):
        heads = "pretraining"
    return {
        "vocab_size": config.size("vocab_size", 30522),
        "d_model": config.size("hidden_size", 768),
        "n_heads": config.size("num_attention_heads", 12),
        "n_layers": config.size("num_hidden_layers", 12),
        "d_ff": config.size("intermediate_size", 3072),
        "dropout": config.number("hidden_dropout_prob", 0.1),
        "max_len": config.size("max_position_embeddings", 512),
        "n_segments": config.size("type_vocab_size", 2),
        "pad_id": config.pad_id(config.size("vocab_size", 30522), 0),
        "heads": heads,
        "activation": config.activation("hidden_act", "gelu"),
        "eps": config.number("layer_norm_eps", 1e-12),
    }


def arguments(model):
    """Return what the model was made with."""
    return model.config


def write_config(config):
    """Return their config."""
    return {
        "model_type": "bert",
        "architectures": [ARCHITECTURES[config["heads"]]],
        "vocab_size": config["vocab_size"],
        "hidden_size": config["d_model"],
        "num_hidden_layers": config["n_layers"],
        "num_attention_heads": config["n_heads"],
        "intermediate_size": config["d_ff"],
        "hidden_act": activation_name(config["activation"]),
        "hidden_dropout_prob": config["dropout"],
        "attention_probs_dropout_prob": config["dropout"],
        "max_position_embeddings": config["max_len"],
        "type_vocab_size": config["n_segments"],
        "layer_norm_eps": config["eps"],
        "pad_token_id": config["pad_id"],
    }


def layout(config):
    """Return {their name: Entry}. In a BertModel without heads, the names lack the "bert." in front."""
    d, f, heads = config["d_model"], config["d_ff"], config["heads"]
    entries = {}
    for name, ours, rows in (
        ("word", "embedding", config["vocab_size"]),
        ("position", "positions", config["max_len"]),
        ("token_type", "segment_embedding", config["n_segments"]),
    ):
        entries |= table(f"bert.embeddings.{name}_embeddings", ours, rows, d)
    entries |= norm("bert.embeddings.LayerNorm", "embedding_norm", d)
    for i in range(config["n_layers"]):
        theirs, ours = f"bert.encoder.layer.{i}", f"encoder.layers.{i}"
        for name in ("query", "key", "value"):
            entries |= linear(f"{theirs}.attention.self.{name}", f"{ours}.self_attention.w_{name[0]}", d, d)
        entries |= linear(f"{theirs}.attention.output.dense", f"{ours}.self_attention.w_o", d, d)
        entries |= norm(f"{theirs}.attention.output.LayerNorm", f"{ours}.norm1", d)
        entries |= linear(f"{theirs}.intermediate.dense", f"{ours}.feed_forward.linear1", d, f)
        entries |= linear(f"{theirs}.output.dense", f"{ours}.feed_forward.linear2", f, d)
        entries |= norm(f"{theirs}.output.LayerNorm", f"{ours}.norm2", d)
    if heads is not None:
        entries |= linear("cls.predictions.transform.dense", "word_head.linear", d, d)
        entries |= norm("cls.predictions.transform.LayerNorm", "word_head.norm", d)
        entries["cls.predictions.bias"] = Entry(("word_head.output.bias",), (config["vocab_size"],))
    if heads == "pretraining":
        entries |= linear("bert.pooler.dense", "pooler.linear", d, d)
        entries |= linear("cls.seq_relationship", "next_head", d, 2)
    return entries


def duplicates(config):
    """Return {their name: the one it is tied to}, of tensors that may be there besides; None: it is not used.

    Our BERT has its pooler for the head on top of it, so one without that head is left out.
    """
    tied = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    unused = {} if config["heads"] == "pretraining" else {f"bert.pooler.dense.{x}": None for x in ("weight", "bias")}
    return {**({} if config["heads"] is None else tied), **unused}
