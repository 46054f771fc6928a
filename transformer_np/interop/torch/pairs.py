"""Which parameter of ours is which tensor of PyTorch: the map is written once, and copied along in either direction."""

from ... import layers
from ...models import Transformer


def of(ours, theirs):
    """Yield (Parameter, tensor) for two layers that match; the tensor is a view with the axes in our order."""
    if isinstance(ours, layers.Checkpoint):  # which computes what the layer inside it does
        ours = ours.layer
    yield from PAIRS[type(ours)](ours, theirs)


def linear(ours, theirs):
    """W (d_in, d_out) is PyTorch's weight (d_out, d_in), transposed."""
    yield ours.weight, theirs.weight.T
    if ours.bias is not None:
        yield ours.bias, theirs.bias


def embedding(ours, theirs):
    """The same table (V, D)."""
    yield ours.weight, theirs.weight


def layer_norm(ours, theirs):
    """gamma is PyTorch's weight, beta its bias."""
    yield ours.gamma, theirs.weight
    if theirs.bias is not None:
        yield ours.beta, theirs.bias


def attention(ours, theirs):
    """W_Q, W_K, W_V are stacked in one matrix, or in three where keys and values have widths of their own."""
    separate = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
    weights = separate if theirs.in_proj_weight is None else theirs.in_proj_weight.chunk(3)
    projections = (ours.w_q, ours.w_k, ours.w_v)
    for projection, weight in zip(projections, weights, strict=True):
        yield projection.weight, weight.T
    if theirs.in_proj_bias is not None:
        for projection, bias in zip(projections, theirs.in_proj_bias.chunk(3), strict=True):
            yield projection.bias, bias
    yield from linear(ours.w_o, theirs.out_proj)


def encoder_layer(ours, theirs):
    """Attention, feed-forward and two norms."""
    yield from attention(ours.self_attention, theirs.self_attn)
    yield from linear(ours.feed_forward.linear1, theirs.linear1)
    yield from linear(ours.feed_forward.linear2, theirs.linear2)
    yield from layer_norm(ours.norm1, theirs.norm1)
    yield from layer_norm(ours.norm2, theirs.norm2)


def decoder_layer(ours, theirs):
    """An encoder layer's parts, cross-attention, and a third norm."""
    yield from encoder_layer(ours, theirs)
    yield from attention(ours.cross_attention, theirs.multihead_attn)
    yield from layer_norm(ours.norm3, theirs.norm3)


def stack(ours, theirs):
    """The layers, and the final norm where there is one."""
    for our_layer, their_layer in zip(ours.layers, theirs.layers, strict=True):
        yield from of(our_layer, their_layer)
    if ours.final_norm is not None:
        yield from layer_norm(ours.final_norm, theirs.norm)


def transformer(ours, theirs):
    """Embeddings, positions where they are learned, the two stacks and the output. Tied weights come more than once."""
    yield from embedding(ours.src_embedding, theirs.src_embedding)
    yield from embedding(ours.tgt_embedding, theirs.tgt_embedding)
    if theirs.src_positions is not None:
        yield from embedding(ours.src_positions, theirs.src_positions)
        yield from embedding(ours.tgt_positions, theirs.tgt_positions)
    yield from stack(ours.encoder, theirs.transformer.encoder)
    yield from stack(ours.decoder, theirs.transformer.decoder)
    yield ours.output.weight, theirs.output.weight
    if ours.output.bias is not None:
        yield ours.output.bias, theirs.output.bias


PAIRS = {
    layers.Linear: linear,
    layers.Embedding: embedding,
    layers.LayerNorm: layer_norm,
    layers.MultiHeadAttention: attention,
    layers.EncoderLayer: encoder_layer,
    layers.DecoderLayer: decoder_layer,
    layers.Encoder: stack,
    layers.Decoder: stack,
    Transformer: transformer,
}
