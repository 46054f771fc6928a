"""The ledger against counts made another way: by an array that counts its own products, by hand, by the paper."""

import numpy as np
import pytest
from traced_layers import LAYERS, MODELS

import transformer_np as tnp


class Counting(np.ndarray):
    """An array that counts the multiplications and additions of every matrix product it takes part in."""

    flops = 0

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        plain = [x.view(np.ndarray) if isinstance(x, Counting) else x for x in inputs]
        if ufunc is np.matmul:
            a, b = plain
            # A vector of ones only sums; any other product of (N, K) and (K, M) takes 2 N K M operations.
            sums = any(x.ndim == 1 and (x == 1).all() for x in (a, b))
            columns = b.shape[-1] if b.ndim > 1 else 1
            Counting.flops += 0 if sums else 2 * a.size * columns
        if out is not None:
            options["out"] = tuple(x.view(np.ndarray) if isinstance(x, Counting) else x for x in out)
        result = getattr(ufunc, method)(*plain, **options)
        if out is not None:
            return out[0]
        return result.view(Counting) if isinstance(result, np.ndarray) else result


@pytest.fixture
def counting_everywhere(monkeypatch):
    """These functions would give plain arrays even where they are given ones that count."""
    for name in ("empty", "zeros", "concatenate", "ascontiguousarray"):
        function = getattr(np, name)
        monkeypatch.setattr(np, name, lambda *a, _f=function, **k: _f(*a, **k).view(Counting))


def count(layer, inputs):
    """The operations of an untraced forward and of its backward, counted by the arrays themselves."""
    for p in layer.parameters():
        p.data = p.data.view(Counting)
    inputs = [x.view(Counting) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for x in inputs]
    Counting.flops = 0
    y = layer.forward(*inputs)
    forward = Counting.flops
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal(part.shape).view(Counting) for part in (y if isinstance(y, tuple) else (y,))]
    together = isinstance(layer, tnp.BERT)
    layer.backward(tuple(parts)) if together else layer.backward(*parts)
    return forward, Counting.flops - forward


@pytest.mark.parametrize("name", [n for n in LAYERS | MODELS if not n.startswith("Checkpoint")])
def test_products_are_those_that_ran(name, counting_everywhere):
    layer, inputs = (LAYERS | MODELS)[name](np.random.default_rng(0))
    total = tnp.trace(layer)(*inputs).ledger().total
    assert (total.forward, total.backward) == count(layer, inputs)


@pytest.mark.parametrize("name", [n for n in LAYERS | MODELS if "blockwise" not in n])
def test_formulas_say_what_ran_and_what_was_kept(name):
    layer, inputs = (LAYERS | MODELS)[name](np.random.default_rng(0))
    ledger = tnp.trace(layer)(*inputs).ledger()
    checkpointed = "heckpoint" in name  # what their layers keep is there in backward only, and they run once more
    for entry in ledger.entries:
        assert checkpointed or not entry.differs, (entry, entry.differs)


def test_by_hand():
    """Two sentences of three tokens, widths 4 and 5: 6 rows, so 2 * 6 * 4 * 5 operations forward, twice that back."""
    layer = tnp.layers.Linear(4, 5, dtype="float32")
    x = np.ones((2, 3, 4), np.float32)
    (entry,) = tnp.trace(layer)(x).ledger().entries
    assert (entry.parameters, entry.kept, entry.new) == (25, 6 * 4 * 4, 6 * 4 * 4)
    assert (entry.forward, entry.backward) == (240, 480)


def test_attention_by_hand():
    """4 B H T S K forward, 8 B H T S K back, with B, H, T, S, K = 2, 3, 4, 5, 6; q, k, v and P are kept."""
    layer, rng = tnp.layers.ScaledDotProductAttention(), np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 3, n, 6)) for n in (4, 5, 5))
    total = tnp.trace(layer)(q, k, v).ledger().total
    assert (total.forward, total.backward) == (4 * 720, 8 * 720)
    assert total.kept == 8 * (2 * 3) * (4 * 6 + 5 * 6 + 5 * 6 + 4 * 5)


def test_an_array_held_twice_is_new_once():
    layer, rng = tnp.layers.MultiHeadAttention(8, 2, seed=0), np.random.default_rng(0)
    x = rng.standard_normal((1, 3, 8)).astype(np.float32)
    ledger = tnp.trace(layer)(x, x, x).ledger()
    entries = {e.name: e for e in ledger.entries}
    assert [entries[n].kept for n in ("w_q", "w_k", "w_v")] == [x.nbytes] * 3
    assert [entries[n].new for n in ("w_q", "w_k", "w_v")] == [x.nbytes, 0, 0]


def test_the_base_model_of_the_paper():
    """Section 3.3 and table 3: D = 512, F = 2048. A layer's feed-forward network holds two thirds of its matrices."""
    layer = tnp.layers.EncoderLayer(512, 8, 2048, dropout=0.0, bias=False, seed=0)
    x = np.zeros((1, 2, 512), np.float32)
    ledger = tnp.trace(layer)(x).ledger()
    feed_forward, attention = ledger["feed_forward"].parameters, ledger["self_attention"].parameters
    assert (feed_forward, attention) == (2 * 512 * 2048, 4 * 512 * 512)
    assert feed_forward / (feed_forward + attention) == pytest.approx(2 / 3, abs=1e-12)
    # 2 operations a weight and token in every matrix; the scores of two tokens come on top.
    assert ledger.total.forward == 2 * 2 * (feed_forward + attention) + 4 * 2 * 2 * 512
    assert ledger.total.backward == 2 * ledger.total.forward


def test_tied_matrices_count_once():
    model = tnp.GPT(11, 8, 2, 1, max_len=6, seed=0)
    assert tnp.trace(model)(np.array([[1, 2, 3]])).ledger().total.parameters == model.n_parameters()


def test_no_layer_of_that_name():
    with pytest.raises(KeyError, match="no layer is called 'lineer'"):
        tnp.trace(tnp.layers.Linear(2, 2))(np.ones((1, 2), np.float32)).ledger()["lineer"]


def test_it_prints():
    ledger = tnp.trace(tnp.layers.FeedForward(4, 8, seed=0))(np.ones((1, 3, 4), np.float32)).ledger()
    assert "2 N d_in d_out" in str(ledger)
    assert str(ledger).splitlines()[-1].startswith("total")
    assert "<td" in ledger._repr_html_()
