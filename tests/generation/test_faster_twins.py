"""Where writing text goes a faster way than the layers as they are written, the result is the same."""

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np import backend
from transformer_np.generation.beam import log_sum_exp
from transformer_np.layers import Linear, OutputProjection
from transformer_np.layers.multi_head_attention import SMALL, project_together
from transformer_np.layers.output_projection import product_of_few

rng = np.random.default_rng(3)


@pytest.mark.parametrize("n", range(1, 11))
@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-13), ("float32", 1e-4)])
def test_product_of_few(n, dtype, rtol):
    rows, table = (rng.standard_normal(shape).astype(dtype) for shape in ((n, 24), (37, 24)))
    product = product_of_few(rows, table)
    assert product.dtype == dtype
    assert product.flags.c_contiguous  # what chooses a token goes along the rows
    np.testing.assert_allclose(product, rows @ table.T, rtol=rtol, atol=rtol)


def test_logits_within_inference_are_those_outside():
    layer = OutputProjection(8, 13, seed=0, dtype="float64")
    layer.bias.data[:] = rng.standard_normal(13)
    x = rng.standard_normal((5, 1, 8))
    with tnp.inference():
        few = layer(x)
    np.testing.assert_allclose(few, layer(x), rtol=1e-13)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("d", "together"), [(12, True), (512, False)])
def test_project_together(bias, d, together):
    linears = tuple(Linear(d, d_out, bias, seed=d_out, dtype="float64") for d_out in (d, 4, 6))
    assert (sum(linear.weight.size for linear in linears) <= SMALL) == together
    for linear in linears:
        if bias:
            linear.bias.data[:] = rng.standard_normal(linear.d_out)
    side_by_side = {}
    with tnp.inference():
        for n_texts, n_tokens in ((2, 7), (2, 1), (1, 1)):  # the prompt, then token by token
            x = rng.standard_normal((n_texts, n_tokens, d))
            for result, linear in zip(project_together(x, linears, side_by_side), linears, strict=True):
                np.testing.assert_allclose(result, linear(x), rtol=1e-12, atol=1e-13)
    assert len(side_by_side) == together


def test_a_new_text_is_written_with_the_weights_of_now():
    model = tnp.GPT(11, 8, 2, 2, max_len=12, seed=1, dtype="float64")
    prompt = np.array([[3, 1, 4], [1, 5, 9]])
    tnp.greedy(model, prompt)
    for p in model.parameters():
        p.data += rng.standard_normal(p.shape)
    np.testing.assert_array_equal(tnp.greedy(model, prompt), tnp.greedy(model, prompt, cache=False))


def test_log_sum_exp_of_a_hand_computed_row_and_of_large_numbers():
    x = np.log(np.array([[1.0, 2.0, 5.0]], "float32"))
    result = log_sum_exp(x)
    assert (result.shape, result.dtype) == ((1, 1), np.float64)
    np.testing.assert_allclose(result, np.log(8), rtol=1e-7)
    np.testing.assert_allclose(log_sum_exp(np.array([[1e4, 1e4, -np.inf]])), 1e4 + np.log(2), rtol=1e-15)


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 4, 5)])
def test_row_dots_with_and_without_vecdot(shape, monkeypatch):
    a, b = rng.standard_normal((2, *shape))
    expected = (a * b).sum(-1, keepdims=True)
    np.testing.assert_allclose(backend.row_dots(a, b), expected, rtol=1e-12, atol=1e-14)
    monkeypatch.delattr(np, "vecdot", raising=False)  # as in NumPy 1
    np.testing.assert_allclose(backend.row_dots(a, b), expected, rtol=1e-12, atol=1e-14)
