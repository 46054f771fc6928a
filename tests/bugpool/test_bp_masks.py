"""The bug pool's mistakes with masks: each case is impossible here, and its right value holds."""

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.layers import MultiHeadAttention, ScaledDotProductAttention, Softmax
from transformer_np.masks import decoder_mask, look_ahead_mask, padding_mask


def tiny_transformer(**options):
    sizes = {"d_model": 8, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 2, "d_ff": 12, "max_len": 12}
    return tnp.Transformer(9, 11, **{**sizes, "dropout": 0.0, "dtype": "float64", "seed": 3, **options})


def test_bp01_fully_masked_row():
    # With q = 0 all scores are 0: row 0 may look nowhere, row 1 at the first two values.
    attention = ScaledDotProductAttention()
    rng = np.random.default_rng(0)
    q = np.zeros((2, 2))
    k, v = rng.standard_normal((3, 2)), np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    mask = np.array([[False, False, False], [True, True, False]])
    y = attention(q, k, v, mask)
    np.testing.assert_array_equal(attention.weights, [[0, 0, 0], [0.5, 0.5, 0]])
    np.testing.assert_array_equal(y, [[0, 0], [2, 3]])
    dq, dk, dv = attention.backward(rng.standard_normal((2, 2)))
    assert all(np.isfinite(d).all() for d in (dq, dk, dv))
    np.testing.assert_array_equal(dq[0], 0)
    np.testing.assert_array_equal(dk[2], 0)


def test_bp01_sentence_of_padding_only():
    model = tiny_transformer()
    src = np.array([[3, 4, 5], [0, 0, 0]])
    logits = model.forward(src, np.array([[1, 2], [1, 2]]))
    model.backward(np.random.default_rng(0).standard_normal(logits.shape))
    assert np.isfinite(logits).all()
    assert all(np.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("fill", [0.0, -3.0, 60000.0])
def test_bp02_float16_mask_constant(fill):
    # No constant such as -1e9 is involved: it would be -inf in float16, or refuse to convert.
    scores = np.array([[0, 0, fill], [1, 2, 3]], "float16")
    y = Softmax()(scores, np.array([[True, True, False], [False, False, False]]))
    assert y.dtype == np.float16
    np.testing.assert_array_equal(y, np.array([[0.5, 0.5, 0], [0, 0, 0]], "float16"))


def test_bp04_adding_two_mask_planes():
    # Sentence [5, 0, 0]: padding and look-ahead planes forbid the same keys twice over.
    mask = decoder_mask(np.array([[5, 0, 0]]))
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask[0, 0], [[True, False, False]] * 3)
    layer = Softmax()
    y = layer(np.random.default_rng(0).standard_normal((1, 1, 3, 3)).astype("float32"), mask)
    np.testing.assert_array_equal(y[0, 0], [[1, 0, 0]] * 3)
    np.testing.assert_array_equal(layer.backward(np.random.default_rng(1).random(y.shape, np.float32)), 0)


def test_bp05_zero_times_infinity_mask():
    # A mask written (1 - m) * -inf makes the visible scores NaN. Here the visible ones are as if alone.
    x = np.array([0.3, -1.2, 7.0])
    np.testing.assert_array_equal(Softmax()(x, np.array([True, True, False]))[:2], Softmax()(x[:2]))


def test_bp06_zero_one_mask_added_to_scores():
    ones = np.tril(np.ones((3, 3)))
    for wrong in (ones, ones.astype("float32"), ones.astype(int), ones.astype("uint8")):
        with pytest.raises(ValueError, match=r"mask must be boolean with True where a query may attend, got \w+"):
            Softmax()(np.zeros((3, 3)), wrong)
    right = Softmax()(np.zeros((3, 3)), ones.astype(bool))
    # Added to the scores, the mask would give e/(e+2) = 0.576117 in the corner.
    np.testing.assert_allclose(right, [[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]], rtol=1e-15)


def test_bp07_mask_polarity():
    attention = MultiHeadAttention(8, 2, seed=0, dtype="float64")
    x = np.random.default_rng(0).standard_normal((1, 3, 8))
    changed = x.copy()
    changed[:, 2] += 1
    keep = look_ahead_mask(3)
    before, after = attention(x, x, x, keep), attention(changed, changed, changed, keep)
    np.testing.assert_array_equal(before[:, :2], after[:, :2])
    # The other polarity looks at the future, and this test can tell.
    assert not np.array_equal(attention(x, x, x, ~keep)[:, :2], attention(changed, changed, changed, ~keep)[:, :2])
    inverted = ~np.array([[0, 1, 1]] * 3)
    assert set(inverted.ravel()) == {-1, -2}  # both are true, so an integer mask must be refused
    with pytest.raises(ValueError, match="mask must be boolean"):
        attention(x, x, x, inverted)


def test_bp09_cross_attention_mask():
    model = tiny_transformer()
    src = np.array([[3, 4, 5, 0, 0]])
    tgt = np.array([[1, 6, 7, 8]])
    logits = model.forward(src, tgt)
    for layer in model.decoder.layers:
        weights = layer.cross_attention.weights
        assert weights.shape == (1, 2, 4, 5)
        np.testing.assert_array_equal(weights[..., 3:], 0)
        assert (weights[..., :3] > 0).all()  # the first target token too may use all three source tokens
    other_pads = np.array([[3, 4, 5, 8, 7]])
    np.testing.assert_array_equal(model.forward(other_pads, tgt, src_mask=src != 0), logits)


def test_bp12_batch_of_one_short_cut():
    # Equal up to rounding only: another batch size may take another BLAS kernel (see bp67).
    model = tiny_transformer()
    src, tgt = np.array([[0, 0, 4, 5], [6, 7, 8, 3]]), np.array([[1, 4], [1, 5]])
    alone, together = model.forward(src[:1], tgt[:1]), model.forward(src, tgt)
    np.testing.assert_allclose(alone, together[:1], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(model.encoder.layers[0].self_attention.weights[0, ..., :2], 0)


@pytest.mark.parametrize(("dtype", "atol"), [("float64", 1e-12), ("float32", 1e-5)])
def test_bp13_padding_invariance(dtype, atol):
    model = tiny_transformer(dtype=dtype)
    sentence, tgt = [3, 4, 5], [1, 6, 7]
    bare = model.forward(np.array([sentence]), np.array([tgt]))
    for n_pads in (1, 5):
        padded = model.forward(np.array([sentence + [0] * n_pads]), np.array([tgt + [0] * n_pads]))
        np.testing.assert_allclose(padded[:, :3], bare, rtol=0, atol=atol)


def test_masks_mark_real_tokens_and_the_past():
    ids = np.array([[7, 3, 0]])
    assert padding_mask(ids).tolist() == [[[[True, True, False]]]]
    assert look_ahead_mask(2).tolist() == [[[[True, False], [True, True]]]]
