"""Where writing text goes a faster way than the layers as they are written, the result is the same."""

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np import backend
from transformer_np.generation.beam import Search, log_sum_exp
from transformer_np.generation.writing import Text, at_rest
from transformer_np.layers import Linear, OutputProjection
from transformer_np.layers.multi_head_attention import SMALL, project_together

rng = np.random.default_rng(3)


@pytest.mark.parametrize("n", range(1, 10))
@pytest.mark.parametrize("bias", [True, False])
def test_logits_from_a_matrix_laid_out_for_few_rows(n, bias):
    layer = OutputProjection(8, 13, bias=bias, seed=0, dtype="float64")
    if bias:
        layer.bias.data[:] = rng.standard_normal(13)
    laid_out = {}
    for _ in range(2):  # the second time from the copy
        x = rng.standard_normal((n, 8))
        np.testing.assert_allclose(layer(x, laid_out), layer(x), rtol=1e-13, atol=1e-14)
    assert laid_out[layer].flags.c_contiguous
    assert not np.shares_memory(laid_out[layer], layer.weight.data)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("d", "together"), [(12, True), (512, False)])
def test_project_together(bias, d, together):
    linears = tuple(Linear(d, d_out, bias, seed=d_out, dtype="float64") for d_out in (d, 4, 6))
    assert (sum(linear.weight.size for linear in linears) <= SMALL) == together
    for linear in linears:
        if bias:
            linear.bias.data[:] = rng.standard_normal(linear.d_out)
    laid_out = {}
    with tnp.inference():
        for n_texts, n_tokens in ((2, 7), (2, 1), (1, 1)):  # the prompt, then token by token
            x = rng.standard_normal((n_texts, n_tokens, d))
            for result, linear in zip(project_together(x, linears, laid_out), linears, strict=True):
                np.testing.assert_allclose(result, linear(x), rtol=1e-12, atol=1e-13)
    assert len(laid_out) == together


def test_a_new_text_is_written_with_the_weights_of_now():
    model = tnp.GPT(11, 8, 2, 2, max_len=12, seed=1, dtype="float64")
    prompt = np.array([[3, 1, 4], [1, 5, 9]])
    tnp.greedy(model, prompt)
    for p in model.parameters():
        p.data += rng.standard_normal(p.shape)
    np.testing.assert_array_equal(tnp.greedy(model, prompt), tnp.greedy(model, prompt, cache=False))


@pytest.mark.parametrize("n_prompts", [1, 2])
def test_the_next_tokens_of_all_texts_are_found_among_the_best_of_each(n_prompts):
    """One step of a search, beside all continuations of all texts written out and sorted."""
    model = tnp.GPT(11, 8, 2, 2, max_len=12, seed=1, dtype="float64")
    prompts = rng.integers(0, 11, (n_prompts, 3))
    with at_rest(model):
        search = Search(Text("test", model, prompts), 4, 1, lambda log_p, n: log_p, None, False)
        search.step()
        texts, log_p = search.text.ids.reshape(n_prompts, 4, -1), search.log_p.copy()
        search.step()
        logits = model.forward(texts.reshape(n_prompts * 4, -1))[:, -1]
    total = log_p[..., None] + np.log(tnp.layers.Softmax()(logits)).reshape(n_prompts, 4, -1)  # (B, M, V)
    order = np.argsort(-total.reshape(n_prompts, -1), axis=1)[:, :4]
    np.testing.assert_allclose(search.log_p, np.take_along_axis(total.reshape(n_prompts, -1), order, 1), rtol=1e-12)
    grown = np.concatenate([texts[np.arange(n_prompts)[:, None], order // 11], (order % 11)[..., None]], 2)
    np.testing.assert_array_equal(search.text.ids.reshape(grown.shape), grown)


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
