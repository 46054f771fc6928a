"""The gradient tests of this folder must be able to fail: each of these wrong backwards is caught.

One for each family of layers, all of them mistakes that have been made in real code.
"""

import numpy as np
import pytest
from finite_differences import TOLERANCE, away_from_kinks, gradient_pairs, relative_errors
from layer_cases import CASES, B, T, V

from transformer_np import CrossEntropy
from transformer_np.layers import (
    Decoder,
    DecoderLayer,
    Dropout,
    Embedding,
    EncoderLayer,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    Linear,
    MultiHeadAttention,
    OutputProjection,
    ReLU,
    ScaledDotProductAttention,
    SinusoidalPositions,
    Softmax,
)


def bias_of_the_first_sentence_only(layer, dy):
    (x,) = layer.saved(dy)
    layer.weight.accumulate(x.reshape(-1, layer.d_in).T @ dy.reshape(-1, layer.d_out))
    layer.bias.accumulate(dy[0].sum(0))
    return dy @ layer.weight.data.T


def repeated_ids_count_once(layer, dy):
    (ids,) = layer.saved(dy)
    layer.weight.grad[ids] += dy * layer.scale


def positions_scale_the_gradient(layer, dy):
    layer.saved(dy)
    return dy * np.sqrt(layer.d_model)


def mean_over_the_batch(layer, dy):
    (offset,) = layer.saved(dy)
    layer.weight.grad[offset : offset + dy.shape[1]] += dy.mean(0)
    return dy.copy()


def dropout_forgets_the_scale(layer, dy):
    (mask,) = layer.saved(dy)
    return dy * (mask > 0)


def no_path_through_the_variance(layer, dy):
    n, std = layer.saved(dy)
    rows = dy.reshape(-1, layer.d_model)
    layer.gamma.accumulate((rows * n).sum(0))
    layer.beta.accumulate(rows.sum(0))
    g = rows * layer.gamma.data
    return ((g - g.mean(-1, keepdims=True)) / std).reshape(dy.shape)


def relu_passes_everything(layer, dy):
    layer.saved(dy)
    return dy.copy()


def softmax_by_its_diagonal_only(layer, dy):
    (y,) = layer.saved(dy)
    return dy * y * (1 - y)


def keys_are_not_scaled(layer, dy):
    scale = np.sqrt(layer._saved[0][0].shape[-1])
    dq, dk, dv = type(layer).backward(layer, dy)
    return dq, dk * scale, dv


def heads_reshaped_without_moving_the_axis(layer, dy):
    d = layer.w_o.backward(dy)
    dq, dk, dv = layer.attention.backward(d.reshape(len(d), layer.n_heads, d.shape[1], -1))
    return tuple(w.backward(_merged(d)) for w, d in ((layer.w_q, dq), (layer.w_k, dk), (layer.w_v, dv)))


def _merged(x):
    return x.swapaxes(1, 2).reshape(len(x), x.shape[2], -1)


def activation_left_out(layer, dy):
    return layer.linear1.backward(layer.dropout.backward(layer.linear2.backward(dy)))


def no_residual_path(layer, dy):
    dy = layer.norm2.backward(dy)
    dx = layer.norm1.backward(dy + layer.feed_forward.backward(layer.dropout2.backward(dy)))
    return sum(layer.self_attention.backward(layer.dropout1.backward(dx)))


def memory_gets_the_keys_gradient_only(layer, dy):
    attention, backward = layer.cross_attention, layer.cross_attention.backward
    attention.backward = lambda dy: (*(kept := backward(dy))[:2], 0 * kept[2])
    return type(layer).backward(layer, dy)


def memory_gets_one_layers_gradient_only(layer, dy):
    for part in reversed(layer.layers):
        dy, dmemory = part.backward(dy)
    return dy, dmemory


def output_scaled_like_the_embedding(layer, dy):
    return type(layer).backward(layer, dy) * np.sqrt(layer.d_model)


WRONG = [
    ("Linear", Linear, bias_of_the_first_sentence_only, "bias"),
    ("Embedding", Embedding, repeated_ids_count_once, "weight"),
    ("SinusoidalPositions", SinusoidalPositions, positions_scale_the_gradient, "input 0"),
    ("LearnedPositions", LearnedPositions, mean_over_the_batch, "weight"),
    ("Dropout", Dropout, dropout_forgets_the_scale, "input 0"),
    ("LayerNorm", LayerNorm, no_path_through_the_variance, "input 0"),
    ("ReLU", ReLU, relu_passes_everything, "input 0"),
    ("Softmax, masked", Softmax, softmax_by_its_diagonal_only, "input 0"),
    ("ScaledDotProductAttention", ScaledDotProductAttention, keys_are_not_scaled, "input 1"),
    ("MultiHeadAttention, self", MultiHeadAttention, heads_reshaped_without_moving_the_axis, "input 2"),
    ("FeedForward", FeedForward, activation_left_out, "input 0"),
    ("EncoderLayer, post", EncoderLayer, no_residual_path, "input 0"),
    ("DecoderLayer, pre", DecoderLayer, memory_gets_the_keys_gradient_only, "input 1"),
    ("Decoder, post", Decoder, memory_gets_one_layers_gradient_only, "input 1"),
    ("OutputProjection, tied", OutputProjection, output_scaled_like_the_embedding, "input 0"),
]


@pytest.mark.parametrize(("case", "kind", "wrong_backward", "where"), WRONG, ids=lambda x: getattr(x, "__name__", x))
def test_a_wrong_backward_is_caught(case, kind, wrong_backward, where):
    layer, inputs = away_from_kinks(CASES[case])
    assert type(layer) is kind
    layer.backward = wrong_backward.__get__(layer)
    errors = relative_errors(gradient_pairs(layer, inputs, only=where))
    assert errors[where] > 1e5 * TOLERANCE


def test_a_loss_averaged_over_padding_too_is_caught():
    def build(rng):
        targets = rng.integers(0, V, (B, T))
        targets[:, -2:] = 0
        return CrossEntropy(0.1, 0), (rng.standard_normal((B, T, V)), targets)

    layer, inputs = away_from_kinks(build)
    n_counting = int((inputs[1] != 0).sum())
    backward = layer.backward
    layer.backward = lambda dloss: backward(dloss) * n_counting / (B * T)
    assert relative_errors(gradient_pairs(layer, inputs))["input 0"] > 1e5 * TOLERANCE


@pytest.mark.parametrize("case", ["Linear", "Dropout", "LayerNorm", "MultiHeadAttention, cross", "EncoderLayer, pre"])
def test_one_entry_off_by_a_millionth_is_caught(case):
    layer, inputs = away_from_kinks(CASES[case])
    backward = layer.backward

    def slightly_wrong(dy):
        gradients = backward(dy)
        first = gradients[0] if isinstance(gradients, tuple) else gradients
        first[np.unravel_index(abs(first).argmax(), first.shape)] *= 1 + 1e-6
        return gradients

    layer.backward = slightly_wrong
    assert 0.9e-6 < relative_errors(gradient_pairs(layer, inputs, only="input 0"))["input 0"] < 1.1e-6
