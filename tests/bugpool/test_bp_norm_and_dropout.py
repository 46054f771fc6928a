"""The bug pool's mistakes with layer norm, residual paths and dropout: each is impossible here."""

import math

import numpy as np
import pytest

from transformer_np.layers import Decoder, DecoderLayer, Dropout, Encoder, EncoderLayer, LayerNorm


def test_bp35_layer_norm_formula():
    y = LayerNorm(4, eps=1e-5, dtype="float64")(np.array([1.0, 0.0, 0.0, 0.0]))
    root = math.sqrt(3 / 16 + 1e-5)  # mean 1/4, variance (9 + 1 + 1 + 1)/16/4; eps inside the root
    np.testing.assert_allclose(y, [0.75 / root, -0.25 / root, -0.25 / root, -0.25 / root], rtol=1e-14)
    np.testing.assert_allclose(y, [1.732005, -0.577335, -0.577335, -0.577335], atol=5e-7)  # unbiased: [1.5, -.5, ...]


def test_bp37_zero_variance_row():
    layer = LayerNorm(4, eps=1e-5, dtype="float64")
    layer.beta.data[...] = [1, 2, 3, 4]
    np.testing.assert_array_equal(layer(np.full((1, 4), 7.0)), [[1, 2, 3, 4]])
    dx = layer.backward(np.array([[1.0, 0.0, 0.0, 0.0]]))
    np.testing.assert_allclose(dx, np.array([[0.75, -0.25, -0.25, -0.25]]) / math.sqrt(1e-5), rtol=1e-12)
    np.testing.assert_allclose(dx, [[237.17, -79.06, -79.06, -79.06]], atol=0.005)


def row_statistics(y):
    return y.mean(-1), y.var(-1)


def test_bp38_pre_norm_or_post_norm():
    x = np.random.default_rng(0).standard_normal((2, 3, 16)) * 3 + 1
    options = {"dropout": 0.0, "seed": 0, "dtype": "float64"}
    for layer, inputs in (
        (lambda norm: EncoderLayer(16, 2, 32, norm=norm, **options), (x,)),
        (lambda norm: DecoderLayer(16, 2, 32, norm=norm, **options), (x, x)),
    ):
        mean, variance = row_statistics(layer("post")(*inputs))
        np.testing.assert_allclose(mean, 0, atol=1e-14)
        np.testing.assert_allclose(variance, 1, atol=1e-4)  # 1 - eps/(variance before)
        mean, variance = row_statistics(layer("pre")(*inputs))
        assert (abs(mean) > 0.1).any()
        assert (abs(variance - 1) > 0.1).all()
        with pytest.raises(ValueError, match="norm must be one of 'post', 'pre', got 'after'"):
            layer("after")
    for stack, inputs in ((Encoder, (x,)), (Decoder, (x, x))):
        assert stack(2, 16, 2, 32, norm="post", **options).final_norm is None
        pre = stack(2, 16, 2, 32, norm="pre", **options)
        mean, variance = row_statistics(pre(*inputs))  # the final norm
        np.testing.assert_allclose(mean, 0, atol=1e-14)
        np.testing.assert_allclose(variance, 1, atol=1e-4)


def test_bp40_dropout_scaling():
    layer = Dropout(0.25, seed=0)
    x = np.ones(10000, "float32")
    y = layer(x)
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    # The mean of n scaled coins has a standard deviation of sqrt(p / (1 - p) / n) = 0.0058; allow five of them.
    assert abs(float(y.mean()) - 1) < 5 * math.sqrt(0.25 / 0.75 / 10000)
    np.testing.assert_array_equal(layer.backward(x), y)  # ones through the same mask


def test_bp40_dropout_eval_is_the_identity():
    layer = Dropout(0.25, seed=0).eval()
    x = np.random.default_rng(0).standard_normal(1000).astype("float32")
    y = layer(x)
    assert y.tobytes() == x.tobytes()
    assert y is not x
    assert layer.backward(x).tobytes() == x.tobytes()
    assert not np.array_equal(layer.train()(x), x)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_bp40_every_dropout_follows_train_and_eval(norm):
    x = np.random.default_rng(0).standard_normal((2, 3, 8))
    layer = EncoderLayer(8, 2, 16, dropout=0.5, norm=norm, seed=0, dtype="float64")
    without = EncoderLayer(8, 2, 16, dropout=0.0, norm=norm, seed=0, dtype="float64")
    without.load_state_dict(layer.state_dict())
    np.testing.assert_array_equal(layer.eval()(x), without(x))
    assert not np.array_equal(layer.train()(x), layer(x))
