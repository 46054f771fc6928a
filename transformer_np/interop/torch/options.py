"""What a PyTorch module was made with, in the words of our constructors; ValueError for what ours do not have."""

import functools
import re

import torch
from torch import nn

DTYPES = {torch.float16: "float16", torch.float32: "float32", torch.float64: "float64"}


def dtype(module):
    """Return the name of the module's one floating-point type."""
    found = {parameter.dtype for parameter in module.parameters()}
    if len(found) != 1 or not found <= DTYPES.keys():
        raise ValueError(f"from_torch: weights must be all float16, float32 or float64, got {found or 'none'}")
    return DTYPES[found.pop()]


def same(what, *values):
    """Return the value that all share; raise ValueError where they differ, since ours has one option for them."""
    if any(value != values[0] for value in values):
        raise ValueError(f"from_torch: {what} must be the same throughout, got {', '.join(map(str, values))}")
    return values[0]


def linear(module):
    """torch.nn.Linear."""
    return {"d_in": module.in_features, "d_out": module.out_features, "bias": module.bias is not None}


def embedding(module):
    """torch.nn.Embedding, which may have a padding_idx: that changes only its gradient."""
    if module.max_norm is not None:
        raise ValueError(f"from_torch: an Embedding with max_norm={module.max_norm} has no counterpart")
    return {"vocab_size": module.num_embeddings, "d_model": module.embedding_dim, "scaled": False}


def layer_norm(module):
    """torch.nn.LayerNorm over the last axis."""
    if len(module.normalized_shape) != 1:
        raise ValueError(f"from_torch: LayerNorm must be over one axis, got {tuple(module.normalized_shape)}")
    if module.weight is None:
        raise ValueError("from_torch: LayerNorm without elementwise_affine has no counterpart")
    return {"d_model": module.normalized_shape[0], "eps": module.eps}


def attention(module):
    """torch.nn.MultiheadAttention."""
    if module.bias_k is not None or module.add_zero_attn:
        raise ValueError("from_torch: MultiheadAttention with add_bias_kv or add_zero_attn has no counterpart")
    return {
        "d_model": module.embed_dim,
        "n_heads": module.num_heads,
        "d_key": module.kdim,
        "d_value": module.vdim,
        "dropout": module.dropout,
        "bias": module.in_proj_bias is not None,
    }


def layer(module):
    """torch.nn.TransformerEncoderLayer or TransformerDecoderLayer."""
    attentions = [part for part in module.children() if isinstance(part, nn.MultiheadAttention)]
    norms = [part for part in module.children() if isinstance(part, nn.LayerNorm)]
    dropouts = [part.p for name, part in module.named_children() if re.fullmatch(r"dropout\d", name)]
    heads = [attention(part) for part in attentions]
    options = {
        "d_model": same("d_model", module.linear1.in_features, *(h[d] for h in heads for d in ("d_key", "d_value"))),
        "n_heads": same("n_heads", *(h["n_heads"] for h in heads)),
        "d_ff": module.linear1.out_features,
        "dropout": same("dropout", *dropouts, *(h["dropout"] for h in heads)),
        "norm": "pre" if module.norm_first else "post",
        "activation": activation(module.activation),
        "eps": same("eps", *(layer_norm(norm)["eps"] for norm in norms)),
        "bias": same("bias", module.linear1.bias is not None, *(h["bias"] for h in heads)),
    }
    if len(heads) > 1:  # our decoder layer has no other dropout within its feed-forward network
        same("dropout", options["dropout"], module.dropout.p)
    elif module.dropout.p != options["dropout"]:
        options["feed_forward_dropout"] = module.dropout.p
    return options


def activation(function):
    """Name PyTorch's function or module of an activation as ours; ValueError for another one."""
    functional = nn.functional
    kind = type(function)
    if kind is nn.GELU:
        return "gelu" if function.approximate == "none" else "gelu_tanh"
    if kind is functools.partial and function.func is functional.gelu and not function.args:
        return {"none": "gelu", "tanh": "gelu_tanh"}[function.keywords.get("approximate", "none")]
    names = {
        "relu": (functional.relu, torch.relu, nn.ReLU),
        "gelu": (functional.gelu,),
        "silu": (functional.silu, nn.SiLU),
        "sigmoid": (functional.sigmoid, torch.sigmoid, nn.Sigmoid),
    }
    for name, theirs in names.items():
        if function in theirs or kind in theirs:
            return name
    raise ValueError(f"from_torch: activation {function!r} has no counterpart; there are {', '.join(names)}, gelu_tanh")


def stack(module):
    """torch.nn.TransformerEncoder or TransformerDecoder."""
    if not len(module.layers):
        raise ValueError("from_torch: the stack has no layers")
    options = same("every layer's options", *(layer(part) for part in module.layers))
    if module.norm is not None and not isinstance(module.norm, nn.LayerNorm):
        raise ValueError(f"from_torch: the final norm must be a LayerNorm, got {type(module.norm).__name__}")
    if module.norm is not None:
        same("eps of the norms", options["eps"], module.norm.eps)
    return {"n_layers": len(module.layers), "final_norm": module.norm is not None, **options}


def transformer(module):
    """TransformerWithEmbeddings."""
    encoder, decoder = stack(module.transformer.encoder), stack(module.transformer.decoder)
    n_layers = {"n_encoder_layers": encoder.pop("n_layers"), "n_decoder_layers": decoder.pop("n_layers")}
    options = same("the options of encoder and decoder", encoder, decoder)
    same("bias of stacks and output", options["bias"], module.output.bias is not None)
    same("dropout", options["dropout"], module.dropout.p)
    return {
        "src_vocab_size": embedding(module.src_embedding)["vocab_size"],
        "tgt_vocab_size": embedding(module.tgt_embedding)["vocab_size"],
        "tie_embeddings": tied(module),
        "pad_id": module.pad_id,
        **positions(module),
        **n_layers,
        **options,
    }


def tied(module):
    """Say which of the three tables are one Parameter, as Transformer's tie_embeddings does."""
    source, target = module.src_embedding.weight, module.tgt_embedding.weight
    if module.output.weight is target:
        return True if source is target else "target"
    if source is target or source is module.output.weight:
        raise ValueError("from_torch: the source embedding may be tied to target embedding and output, not to one only")
    return False


def positions(module):
    """Return Transformer's options for positions."""
    if module.src_positions is not None:
        rows = module.src_positions.num_embeddings, module.tgt_positions.num_embeddings
        return {"positions": "learned", "max_len": same("max_len of source and target", *rows)}
    ours = module.sinusoids
    return {"max_len": ours.max_len, "position_layout": ours.layout, "first_position": ours.first}
