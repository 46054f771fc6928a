"""PyTorch's layers from ours, and ours from PyTorch's: the same weights, the same outputs, nothing lost either way.

    MultiHeadAttention  torch.nn.MultiheadAttention           Linear     torch.nn.Linear
    EncoderLayer        torch.nn.TransformerEncoderLayer      Embedding  torch.nn.Embedding (scaled=False)
    DecoderLayer        torch.nn.TransformerDecoderLayer      LayerNorm  torch.nn.LayerNorm
    Encoder             torch.nn.TransformerEncoder
    Decoder             torch.nn.TransformerDecoder
    Transformer         TransformerWithEmbeddings, around a torch.nn.Transformer

PyTorch keeps a linear map's matrix as (d_out, d_in), ours is (d_in, d_out); and it stacks the three matrices of
queries, keys and values in one.
"""

import functools

import numpy as np

from ... import layers
from ...backend import to_numpy
from ...checks import describe
from ...models import Transformer
from . import pairs


def to_torch(model):
    """Return the PyTorch module with the same weights, options, dtype and mode (train or eval) as `model`; batch first.

    A Transformer comes as a `TransformerWithEmbeddings`, since torch.nn.Transformer has neither embeddings nor output;
    its attribute `transformer` is the torch.nn.Transformer. Raises TypeError for a layer that has no counterpart, and
    ValueError for an option that PyTorch has not.
    """
    import torch

    makers = {
        layers.Linear: _linear,
        layers.Embedding: _embedding,
        layers.LayerNorm: _layer_norm,
        layers.MultiHeadAttention: _attention,
        layers.EncoderLayer: _encoder_layer,
        layers.DecoderLayer: _decoder_layer,
        layers.Encoder: _encoder,
        layers.Decoder: _decoder,
        Transformer: _transformer,
    }
    if type(model) not in makers:
        raise TypeError(f"to_torch: got {type(model).__name__}, expected {', '.join(kind.__name__ for kind in makers)}")
    module = makers[type(model)](model).to(_torch_dtype(model.dtype))
    with torch.no_grad():
        for parameter, tensor in pairs.of(model, module):
            tensor.copy_(torch.from_numpy(np.ascontiguousarray(to_numpy(parameter.data))))
    return module.train(model.training)


def _torch_dtype(dtype):
    import torch

    if dtype.name not in ("float16", "float32", "float64"):
        raise ValueError(f"to_torch: dtype must be float16, float32 or float64, got {dtype.name}")
    return getattr(torch, dtype.name)


def _linear(ours):
    from torch import nn

    return nn.Linear(ours.d_in, ours.d_out, bias=ours.bias is not None)


def _embedding(ours):
    from torch import nn

    if ours.scale != 1:
        raise ValueError("to_torch: torch.nn.Embedding does not scale by sqrt(d_model); make ours with scaled=False")
    return nn.Embedding(ours.vocab_size, ours.d_model)


def _layer_norm(ours):
    from torch import nn

    return nn.LayerNorm(ours.d_model, ours.eps)


def _attention(ours):
    from torch import nn

    _check_attention(ours)
    return nn.MultiheadAttention(
        ours.d_model,
        ours.n_heads,
        dropout=ours.attention.dropout.p,
        bias=ours.w_q.bias is not None,
        kdim=ours.d_key,
        vdim=ours.d_value,
        batch_first=True,
    )


def _check_attention(ours):
    """Raise ValueError for what torch.nn.MultiheadAttention cannot be told."""
    unlike = {
        "n_kv_heads": ours.n_kv_heads != ours.n_heads,
        "d_head": ours.n_heads * ours.d_head != ours.d_model,
        "rotary": ours.rotary_q is not None,
        "scale": ours.attention.scale is not None,
        "causal": getattr(ours.attention, "causal", False),  # of blockwise attention, which else computes the same
    }
    if any(unlike.values()):
        names = ", ".join(name for name, is_set in unlike.items() if is_set)
        raise ValueError(f"to_torch: torch.nn.MultiheadAttention has no {names}")


def _layer(kind, ours):
    """Make a PyTorch encoder or decoder layer with the options of ours."""
    from torch import nn

    forward = ours.feed_forward
    if isinstance(forward, layers.GatedFeedForward):
        raise ValueError("to_torch: PyTorch's layers have no gated=True")
    if not isinstance(ours.norm1, layers.LayerNorm):
        raise ValueError(f"to_torch: PyTorch's layers have no norm_layer={type(ours.norm1).__name__}")
    _check_attention(ours.self_attention)
    module = kind(
        ours.d_model,
        ours.n_heads,
        forward.linear1.d_out,
        dropout=ours.dropout1.p,
        activation=_torch_activation(forward.activation),
        layer_norm_eps=ours.norm1.eps,
        batch_first=True,
        norm_first=ours.norm == "pre",
        bias=forward.linear1.bias is not None,
    )
    module.dropout.p = forward.dropout.p  # within the feed-forward network
    for name in ("norm1", "norm2", "norm3"):  # bias=False takes the shift from PyTorch's norms; ours keep it
        if hasattr(module, name):
            setattr(module, name, nn.LayerNorm(ours.d_model, ours.norm1.eps))
    return module


def _encoder_layer(ours):
    from torch import nn

    return _layer(nn.TransformerEncoderLayer, ours)


def _decoder_layer(ours):
    from torch import nn

    return _layer(nn.TransformerDecoderLayer, ours)


def _stack(kind, ours, layer, **options):
    """Make a PyTorch stack, which copies `layer` as often as it has layers."""
    if ours.position_bias is not None:
        raise ValueError("to_torch: PyTorch's stacks have no position_bias")
    norm = None if ours.final_norm is None else _layer_norm(ours.final_norm)
    return kind(layer, len(ours.layers), norm, **options)


def _encoder(ours):
    from torch import nn

    return _stack(nn.TransformerEncoder, ours, _encoder_layer(ours.layers[0]), enable_nested_tensor=False)


def _decoder(ours):
    from torch import nn

    return _stack(nn.TransformerDecoder, ours, _decoder_layer(ours.layers[0]))


def _transformer(ours):
    from torch import nn

    from .transformer import TransformerWithEmbeddings

    d_model = ours.config["d_model"]
    transformer = nn.Transformer(
        d_model,
        ours.config["n_heads"],
        custom_encoder=_encoder(ours.encoder),
        custom_decoder=_decoder(ours.decoder),
        batch_first=True,
    )
    embeddings = [nn.Embedding(e.vocab_size, d_model) for e in (ours.src_embedding, ours.tgt_embedding)]
    output = nn.Linear(d_model, ours.output.vocab_size, bias=ours.output.bias is not None)
    if ours.tgt_embedding.weight is ours.src_embedding.weight:
        embeddings[1].weight = embeddings[0].weight
    if ours.output.weight is ours.tgt_embedding.weight:
        output.weight = embeddings[1].weight
    positions = ours.src_positions
    if isinstance(positions, layers.LearnedPositions):
        positions = [nn.Embedding(positions.max_len, d_model) for _ in range(2)]
    return TransformerWithEmbeddings(transformer, *embeddings, output, positions, ours.pad_id, ours.src_dropout.p)


def _torch_activation(ours):
    """Return what PyTorch's layers take as `activation`."""
    import torch

    if isinstance(ours, layers.GELU):
        return "gelu" if ours.approximate == "none" else functools.partial(torch.nn.functional.gelu, approximate="tanh")
    return {
        layers.ReLU: "relu",
        layers.SiLU: torch.nn.functional.silu,
        layers.Sigmoid: torch.sigmoid,
    }[type(ours)]


def from_torch(module):
    """Return the layer or model of this package with the same weights, options, dtype and mode as a PyTorch module.

    A bare torch.nn.Transformer has no embeddings: it comes as the pair (Encoder, Decoder). Wrap it in
    `interop.torch.transformer.TransformerWithEmbeddings` to say which ones belong to it and get a Transformer.
    Ours is always batch first, whatever the module is; a norm without bias gets one of zeros.
    Raises TypeError for a module that has no counterpart, and ValueError for options that ours has not, before anything
    is made.
    """
    import torch
    from torch import nn

    from . import options
    from .transformer import TransformerWithEmbeddings

    if isinstance(module, nn.Transformer):
        return from_torch(module.encoder), from_torch(module.decoder)
    makers = {
        nn.Linear: (layers.Linear, options.linear),
        nn.Embedding: (layers.Embedding, options.embedding),
        nn.LayerNorm: (layers.LayerNorm, options.layer_norm),
        nn.MultiheadAttention: (layers.MultiHeadAttention, options.attention),
        nn.TransformerEncoderLayer: (layers.EncoderLayer, options.layer),
        nn.TransformerDecoderLayer: (layers.DecoderLayer, options.layer),
        nn.TransformerEncoder: (layers.Encoder, options.stack),
        nn.TransformerDecoder: (layers.Decoder, options.stack),
        TransformerWithEmbeddings: (Transformer, options.transformer),
    }
    if type(module) not in makers:
        kinds = ", ".join(kind.__name__ for kind in makers)
        raise TypeError(f"from_torch: got {describe_module(module)}, expected {kinds}")
    output = nn.modules.linear.NonDynamicallyQuantizableLinear  # of an attention: a Linear by another name
    check_parts(module, {*makers, nn.Transformer, nn.ModuleList, nn.Dropout, output})
    make, read_options = makers[type(module)]
    ours = make(**read_options(module), dtype=options.dtype(module))
    with torch.no_grad():
        for parameter, tensor in pairs.of(ours, module):
            parameter.data[...] = tensor.cpu().numpy()
    return ours.train(module.training)


def check_parts(module, kinds):
    """Raise TypeError for a part that is not exactly one of `kinds`: what is derived from one may compute other things.

    Activations are told by `options.activation`.
    """
    for name, part in module.named_modules():
        if type(part) not in kinds and not name.endswith("activation"):
            expected = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise TypeError(f"from_torch: {name} is a {type(part).__name__}, expected one of {expected}")


def describe_module(module):
    """Name a module by its class, anything else by what it is."""
    return type(module).__name__ if hasattr(module, "named_parameters") else describe(module)
