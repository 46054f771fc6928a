"""What a token may not influence stays the same to the last bit: outputs and gradients, padding and the future.

`array_equal` takes 0.0 and -0.0 as equal, which is the one difference allowed here: a gradient of zero has no sign.
"""

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.layers import Encoder, MultiHeadAttention

PAD = 0
# Token 3 stands in the sentences again and again, and the tests put it at padded and future places too: were its zero
# gradients summed in with the real ones, the sum would be rounded differently.
SRC = np.array([[3, 4, 5, 3, 6, 3, 3], [7, 3, 8, 3, 3, PAD, PAD], [PAD, 3, 9, 3, 3, 9, PAD]])
TGT = np.array([[1, 5, 3, 3, 2, 3, 9], [1, 3, 3, 7, 3, PAD, PAD], [1, 3, 3, 3, PAD, PAD, PAD]])

both_norms = pytest.mark.parametrize("norm", ["post", "pre"])
both_dtypes = pytest.mark.parametrize("dtype", ["float32", "float64"])
all_ties = pytest.mark.parametrize("tie", [False, True])


def build(norm, dtype, tie=False, dropout=0.3):
    model = tnp.Transformer(
        12, 12, 24, 3, 2, 2, 40, dropout=dropout, max_len=16, norm=norm, tie_embeddings=tie, seed=5, dtype=dtype
    )
    rng = np.random.default_rng(7)
    for p in model.parameters():  # away from gamma = 1 and beta = 0
        p.data += 0.1 * rng.standard_normal(p.shape).astype(dtype)
    return model.replay_dropout(True)


def run(model, src, tgt, src_mask, tgt_mask, counts):
    """Return the logits at the tokens that count, and all gradients of a loss that is taken there."""
    model.zero_grad()
    logits = model.forward(src, tgt, src_mask, tgt_mask)
    dlogits = np.random.default_rng(11).standard_normal(logits.shape).astype(logits.dtype)
    model.backward(dlogits * counts[..., None])
    return [logits[counts], *(p.grad for p in model.parameters())]


def assert_same_bits(before, after):
    for one, other in zip(before, after, strict=True):
        assert one.dtype == other.dtype
        assert np.isfinite(one).all()
        assert (one + 0.0).tobytes() == (other + 0.0).tobytes()  # + 0.0 turns -0.0 into 0.0


@both_norms
@both_dtypes
@all_ties
def test_a_future_target_token_changes_nothing_before_it(norm, dtype, tie):
    model = build(norm, dtype, tie)
    src_mask, tgt_mask = SRC != PAD, np.ones(TGT.shape, bool)
    for t in (1, 3, 5):
        counts = np.zeros(TGT.shape, bool)
        counts[:, :t] = True
        before = run(model, SRC, TGT, src_mask, tgt_mask, counts)
        for token in (3, 11):
            changed = TGT.copy()
            changed[:, t:] = token
            assert_same_bits(before, run(model, SRC, changed, src_mask, tgt_mask, counts))
        # The same change one step earlier is seen, so this test can tell.
        changed = TGT.copy()
        changed[:, t - 1] = 11
        assert not np.array_equal(before[0], run(model, SRC, changed, src_mask, tgt_mask, counts)[0])


@both_norms
@both_dtypes
@all_ties
def test_a_padded_source_token_changes_nothing(norm, dtype, tie):
    model = build(norm, dtype, tie)
    src_mask, tgt_mask = SRC != PAD, TGT != PAD
    before = run(model, SRC, TGT, src_mask, tgt_mask, tgt_mask)
    for token in (3, 11):
        assert_same_bits(before, run(model, np.where(src_mask, SRC, token), TGT, src_mask, tgt_mask, tgt_mask))
    changed = SRC.copy()
    changed[0, 0] = 11
    assert not np.array_equal(before[0], run(model, changed, TGT, src_mask, tgt_mask, tgt_mask)[0])


@both_norms
@both_dtypes
@all_ties
def test_a_padded_target_token_changes_nothing(norm, dtype, tie):
    # Padding in front and in the middle as well, where the look-ahead mask alone would not hide it.
    model = build(norm, dtype, tie)
    tgt = np.array([[PAD, 1, 5, PAD, 3, 3, 3], [1, 3, 3, 7, 3, PAD, PAD], [1, PAD, 8, 3, PAD, 3, PAD]])
    src_mask, tgt_mask = SRC != PAD, tgt != PAD
    before = run(model, SRC, tgt, src_mask, tgt_mask, tgt_mask)
    for token in (3, 11):
        assert_same_bits(before, run(model, SRC, np.where(tgt_mask, tgt, token), src_mask, tgt_mask, tgt_mask))


@both_norms
@both_dtypes
def test_default_masks_are_those_of_the_padding(norm, dtype):
    model = build(norm, dtype)
    np.testing.assert_array_equal(model.forward(SRC, TGT), model.forward(SRC, TGT, SRC != PAD, TGT != PAD))


@both_norms
@both_dtypes
def test_other_sentences_of_the_batch_change_nothing(norm, dtype):
    """Within one batch shape a sentence's logits do not depend on its neighbours by a single bit.

    Alone, or in a batch of another size, BLAS may take another kernel and sum in another order: there the results are
    equal up to rounding only.
    """
    model = build(norm, dtype, dropout=0.0)
    before = model.forward(SRC, TGT)
    other_src, other_tgt = SRC.copy(), TGT.copy()
    other_src[1:], other_tgt[1:] = 11, 10
    assert model.forward(other_src, other_tgt)[0].tobytes() == before[0].tobytes()
    tolerance = {"float32": 2e-5, "float64": 1e-12}[dtype] * abs(before).max()
    for i in range(len(SRC)):
        alone = model.forward(SRC[i : i + 1], TGT[i : i + 1])[0]
        np.testing.assert_allclose(alone, before[i], rtol=0, atol=tolerance)


@both_norms
@both_dtypes
def test_a_source_sentence_of_padding_only(norm, dtype):
    model = build(norm, dtype)
    src = SRC.copy()
    src[1] = PAD
    counts = TGT != PAD
    before = run(model, src, TGT, src != PAD, counts, counts)
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        attention = getattr(layer, "cross_attention", layer.self_attention)
        np.testing.assert_array_equal(attention.weights[1], 0)
    # The decoder then sees nothing of that sentence: any other tokens there, as hidden, give the same.
    hidden = np.where(src == PAD, 11, src)
    assert_same_bits(before, run(model, hidden, TGT, src != PAD, counts, counts))


@both_norms
def test_a_target_sentence_of_padding_only(norm):
    model = build(norm, "float64")
    tgt = TGT.copy()
    tgt[2] = PAD
    results = run(model, SRC, tgt, SRC != PAD, tgt != PAD, np.ones(tgt.shape, bool))
    assert all(np.isfinite(r).all() for r in results)


@both_dtypes
def test_a_fully_masked_row_gives_zeros_and_finite_gradients(dtype):
    attention = MultiHeadAttention(8, 2, bias=False, seed=0, dtype=dtype)
    rng = np.random.default_rng(0)
    query, memory, dy = (rng.standard_normal(s).astype(dtype) for s in ((2, 3, 8), (2, 4, 8), (2, 3, 8)))
    mask = np.ones((2, 1, 3, 4), bool)
    mask[0, 0, 1] = False
    y = attention(query, memory, memory, mask)
    np.testing.assert_array_equal(y[0, 1], 0)
    assert (y[0, 0] != 0).any()
    dquery, dkey, dvalue = attention.backward(dy)
    np.testing.assert_array_equal(dquery[0, 1], 0)
    for gradient in (dquery, dkey, dvalue, *(p.grad for p in attention.parameters())):
        assert np.isfinite(gradient).all()


@both_norms
@pytest.mark.parametrize(("n", "s", "t"), [(1, 1, 1), (1, 5, 2), (2, 1, 4), (3, 4, 1), (2, 2, 7)])
def test_every_shape_works(norm, n, s, t):
    model = build(norm, "float64")
    rng = np.random.default_rng(0)
    src, tgt = rng.integers(1, 12, (n, s)), rng.integers(1, 12, (n, t))
    logits = model.forward(src, tgt)
    assert logits.shape == (n, t, 12)
    model.backward(rng.standard_normal(logits.shape))
    assert all(np.isfinite(p.grad).all() for p in model.parameters())
    weights = model.decoder.layers[0].cross_attention.weights
    assert weights.shape == (n, 3, t, s)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-14)


@both_norms
def test_forward_and_backward_leave_their_inputs_alone(norm):
    encoder = Encoder(2, 8, 2, 12, dropout=0.2, norm=norm, seed=0, dtype="float64")
    rng = np.random.default_rng(0)
    x, dy, mask = rng.standard_normal((2, 3, 8)), rng.standard_normal((2, 3, 8)), np.tri(3, dtype=bool)
    copies = x.copy(), dy.copy(), mask.copy()
    for array in (x, dy, mask):
        array.setflags(write=False)
    y = encoder(x, mask)
    dx = encoder.backward(dy)
    for array, copy in zip((x, dy, mask), copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    assert not any(np.shares_memory(a, b) for a in (y, dx) for b in (x, dy))
