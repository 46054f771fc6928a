"""The contract of every layer and of the whole model: what forward and backward keep, change, and leave alone."""

import copy

import numpy as np
import pytest
from finite_differences import assert_gradients, away_from_kinks
from layer_cases import CASES, FLOAT64, D, F

import transformer_np as tnp
from transformer_np.backend import float_dtype
from transformer_np.layers import Dropout, Encoder, LayerNorm, Linear, ScaledDotProductAttention, Softmax


def transformer(**options):
    """A tiny Transformer with dropout."""
    return tnp.Transformer(9, 10, 6, 2, 1, 2, 8, 0.2, 11, **{"dtype": "float64", "seed": 3, **options})


def transformer_case(tie, **options):
    src, tgt = np.array([[3, 4, 5], [6, 0, 0]]), np.array([[1, 4, 9, 6], [1, 3, 0, 0]])
    return transformer(tie_embeddings=tie, **options), (src, tgt)


ALL = {
    **CASES,
    "Transformer, post": lambda rng: transformer_case(False),
    "Transformer, pre": lambda rng: transformer_case("target", norm="pre", positions="learned"),
}


def build(case, seed=0):
    """(layer, inputs) of a case."""
    return ALL[case](np.random.default_rng(seed))


def upstream(y, seed=5):
    """A random gradient for the output y."""
    return np.random.default_rng(seed).standard_normal(y.shape).astype(y.dtype)


def arrays(value):
    """The NumPy arrays in a result: one, or those of a tuple."""
    return [a for a in (value if isinstance(value, tuple) else (value,)) if a is not None]


def kept(layer):
    """Names of the layers inside that hold something for backward."""
    return [name for name, module in layer.named_modules() if module._saved is not None]


@pytest.mark.parametrize("case", ALL)
def test_inputs_upstream_and_parameters_are_left_alone(case):
    layer, inputs = build(case)
    inputs_before, state_before = copy.deepcopy(inputs), layer.state_dict()
    for a in inputs:
        a.flags.writeable = False
    y = layer.forward(*inputs)
    dy = upstream(y)
    dy.flags.writeable = False
    gradients = layer.backward(dy)
    for before, after in zip(inputs_before, inputs, strict=True):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(dy, upstream(y))
    for name, value in layer.state_dict().items():
        np.testing.assert_array_equal(value, state_before[name])
    for result in (y, *arrays(gradients)):  # nor does a result share memory with what went in
        for other in (*inputs, dy, *(p.data for p in layer.parameters())):
            assert not np.shares_memory(result, other)
    for p in layer.parameters():
        assert not any(np.shares_memory(p.grad, a) for a in (dy, *arrays(gradients), *inputs, p.data))


@pytest.mark.parametrize("case", ALL)
def test_forward_leaves_its_earlier_output_alone(case):
    layer, inputs = build(case)
    y = layer.forward(*inputs)
    before = y.copy()
    layer.forward(*inputs)
    np.testing.assert_array_equal(y, before)


@pytest.mark.parametrize("case", ALL)
def test_one_forward_serves_one_backward(case):
    layer, inputs = build(case)
    y = layer.forward(*inputs)
    layer.zero_grad()
    layer.backward(upstream(y))
    gradients = {name: p.grad.copy() for name, p in layer.named_parameters()}
    with pytest.raises(RuntimeError, match="call forward first"):
        layer.backward(upstream(y))
    for name, p in layer.named_parameters():
        np.testing.assert_array_equal(p.grad, gradients[name])


@pytest.mark.parametrize("case", ALL)
def test_backward_adds_to_the_gradients(case):
    layer, inputs = build(case)
    layer.replay_dropout(True)
    y = layer.forward(*inputs)
    layer.backward(upstream(y))
    once = {name: p.grad.copy() for name, p in layer.named_parameters()}
    np.testing.assert_array_equal(layer.forward(*inputs), y)
    layer.backward(upstream(y))
    for name, p in layer.named_parameters():  # g + g is 2 g to the bit, where each array is gathered in one go
        np.testing.assert_allclose(p.grad, 2 * once[name], rtol=0, atol=1e-14 * abs(once[name]).max())
    layer.zero_grad()
    assert all((p.grad == 0).all() for p in layer.parameters())


@pytest.mark.parametrize("case", ALL)
def test_of_two_forwards_the_last_counts(case):
    layer, inputs = build(case)
    layer.replay_dropout(True)
    other = tuple(a if a.dtype.kind in "ib" else a[::-1] * 0.7 for a in inputs)
    y = layer.forward(*inputs)
    expected = arrays(layer.backward(upstream(y)))
    expected += [p.grad.copy() for p in layer.parameters()]
    layer.zero_grad()
    layer.forward(*other)
    y = layer.forward(*inputs)
    got = arrays(layer.backward(upstream(y))) + [p.grad for p in layer.parameters()]
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("case", ALL)
def test_an_upstream_gradient_that_does_not_fit_uses_nothing_up(case):
    layer, inputs = build(case)
    layer.replay_dropout(True)
    y = layer.forward(*inputs)
    expected = arrays(layer.backward(upstream(y))) + [p.grad.copy() for p in layer.parameters()]
    layer.zero_grad()
    layer.forward(*inputs)
    for wrong in (upstream(y)[..., :-1], upstream(y)[None], upstream(y).astype("float32"), np.ones(y.shape, int)):
        with pytest.raises(ValueError, match="upstream gradient dy"):
            layer.backward(wrong)
    got = arrays(layer.backward(upstream(y))) + [p.grad for p in layer.parameters()]
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("case", ALL)
def test_BP_69_caches_do_not_grow_and_inference_keeps_none(case):
    layer, inputs = build(case)
    y = layer.forward(*inputs)
    first = sorted(kept(layer))
    assert first
    for _ in range(5):
        layer.forward(*inputs)
    assert sorted(kept(layer)) == first
    layer.backward(upstream(y))
    assert kept(layer) == []
    layer.forward(*inputs)
    with tnp.inference():
        layer.eval().forward(*inputs)
        assert kept(layer) == []  # what an earlier forward had kept is dropped too
        with pytest.raises(RuntimeError, match="call forward first"):
            layer.backward(upstream(y))
        weights = [m.weights for _, m in layer.named_modules() if isinstance(m, ScaledDotProductAttention)]
        assert all(w is None for w in weights)
    layer.forward(*inputs)
    layer.backward(upstream(y))  # evaluation alone switches dropout off, and keeps what backward needs


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("case", ALL)
def test_no_dtype_changes_on_the_way(case, dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    layer, inputs = build(case)
    layer.astype(dtype)
    dtype = float_dtype(dtype)
    inputs = tuple(a.astype(dtype) if a.dtype.kind == "f" else a for a in inputs)
    y = layer.forward(*inputs)
    assert y.dtype == dtype
    assert np.isfinite(y).all()
    for gradient in arrays(layer.backward(upstream(y))):
        assert gradient.dtype == dtype
        assert np.isfinite(gradient).all()
    for p in layer.parameters():
        assert p.data.dtype == p.grad.dtype == dtype
        assert np.isfinite(p.grad).all()


@pytest.mark.parametrize("kind", [Softmax, ScaledDotProductAttention])
def test_half_precision_comes_near_double(kind):
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((2, 3, 8)).astype("float16") for _ in range(1 if kind is Softmax else 3)]
    y = kind().forward(*inputs)
    exact = kind().forward(*(a.astype("float64") for a in inputs))
    np.testing.assert_allclose(y, exact, rtol=0, atol=4 * np.finfo("float16").eps * abs(exact).max())


def test_names_come_in_the_order_of_the_computation():
    expected = ["linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias"]
    assert [name for name, _ in tnp.layers.FeedForward(D, F).named_parameters()] == expected
    names = [name for name, _ in Encoder(2, 6, 2, 8, norm="pre").named_parameters()]
    assert names[:2] == ["layers.0.self_attention.w_q.weight", "layers.0.self_attention.w_q.bias"]
    assert names[-2:] == ["final_norm.gamma", "final_norm.beta"]
    assert len(names) == len(set(names)) == 2 * (8 + 4 + 4) + 2


@pytest.mark.parametrize(
    ("tie", "absent"),
    [(False, set()), ("target", {"output.weight"}), (True, {"output.weight", "tgt_embedding.weight"})],
)
def test_a_shared_parameter_is_named_once(tie, absent):
    model = tnp.Transformer(10, 10, 6, 2, 1, 1, 8, tie_embeddings=tie)
    names = [name for name, _ in model.named_parameters()]
    matrices = {"src_embedding.weight", "tgt_embedding.weight", "output.weight"}
    assert matrices - set(names) == absent
    assert len(model.parameters()) == len({id(p) for p in model.parameters()}) == len(names)
    assert set(model.state_dict()) == set(names)
    assert model.n_parameters() == sum(v.size for v in model.state_dict().values())


@pytest.mark.parametrize("tie", [False, "target"])
def test_state_dict_round_trip(tie):
    one, two = transformer(tie_embeddings=tie, seed=1), transformer(tie_embeddings=tie, seed=2)
    _, ids = transformer_case(tie)
    state = one.state_dict()
    parameters = two.parameters()
    assert two.load_state_dict(state) is two
    assert all(p is q for p, q in zip(parameters, two.parameters(), strict=True))  # an optimiser keeps its hold
    np.testing.assert_array_equal(one.eval()(*ids), two.eval()(*ids))
    for value in state.values():
        value += 1  # the state is a copy
    np.testing.assert_array_equal(one(*ids), two(*ids))


def test_astype_converts_values_and_gradients_and_drops_what_was_kept():
    model, ids = transformer_case(False)
    y = model.forward(*ids)
    model.backward(upstream(y))
    values, gradients = [p.data for p in model.parameters()], [p.grad for p in model.parameters()]
    model.forward(*ids)
    assert model.astype("float32") is model
    assert kept(model) == []
    for p, value, gradient in zip(model.parameters(), values, gradients, strict=True):
        np.testing.assert_array_equal(p.data, value.astype("float32"))
        np.testing.assert_array_equal(p.grad, gradient.astype("float32"))
    assert model.forward(*ids).dtype == np.float32


def test_train_and_eval_reach_every_dropout():
    model, ids = transformer_case(False)
    assert all(m.training for _, m in model.named_modules())
    assert (model(*ids) != model(*ids)).any()
    assert model.eval() is model
    assert not any(m.training for _, m in model.named_modules())
    np.testing.assert_array_equal(model(*ids), model(*ids))
    assert (model.train()(*ids) != model(*ids)).any()


def test_replayed_dropout_repeats_until_it_is_ended():
    model, ids = transformer_case(False)
    model.replay_dropout(True)
    first = model(*ids)
    np.testing.assert_array_equal(model(*ids), first)
    model.replay_dropout(True)  # from the next forward on, new masks
    second = model(*ids)
    assert (second != first).any()
    np.testing.assert_array_equal(model(*ids), second)
    model.replay_dropout(False)
    assert (model(*ids) != model(*ids)).any()


def test_the_same_seed_gives_the_same_model_and_the_same_dropout():
    one, two = transformer(seed=7), transformer(seed=7)
    _, ids = transformer_case(False)
    for _ in range(2):
        np.testing.assert_array_equal(one(*ids), two(*ids))
    other = transformer(seed=8)
    for p, q in zip(one.parameters(), other.parameters(), strict=True):
        assert p.data.ndim == 1 or (p.data != q.data).any()  # the biases start at 0, gammas at 1


class Scale(tnp.Module):
    """A user's own layer: y = a * sqrt(x), with one learned number, around a list of the package's layers."""

    def __init__(self, d, seed=None, dtype="float32"):
        super().__init__(seed, dtype)
        self.a = tnp.Parameter(np.full((1,), 2.0, self.dtype))
        self.parts = [LayerNorm(d, dtype=dtype), Linear(d, d, seed=self.rng, dtype=dtype), Dropout(0.5, seed=self.rng)]

    def forward(self, x):
        root = np.sqrt(x)
        self.save_for_backward(root, output=root)
        y = root * self.a.data
        for part in self.parts:
            y = part(y)
        return y

    def backward(self, dy):
        for part in reversed(self.parts):
            dy = part.backward(dy)
        (root,) = self.saved(dy)
        self.a.accumulate((dy * root).sum().reshape(1))
        return dy * self.a.data / (2 * root)


def test_a_users_own_layer_is_a_full_member():
    def own(rng):
        return Scale(D, seed=rng, **FLOAT64), (1 + rng.random((3, 4, D)),)

    layer, _ = own(np.random.default_rng(0))
    names = [name for name, _ in layer.named_parameters()]
    assert names == ["a", "parts.0.gamma", "parts.0.beta", "parts.1.weight", "parts.1.bias"]
    # A layer norm undoes a common factor but for its eps, so the gradient of `a` is tiny: leave the norm out.
    layer, inputs = away_from_kinks(own)
    del layer.parts[0]
    assert_gradients(layer, inputs)
    x = np.ones((2, D))
    y = layer.astype("float32").eval()(x.astype("float32"))
    step = tnp.TrainStep(layer, tnp.CrossEntropy(), tnp.Adam(layer.parameters(), lr=0.01))
    losses = [step(x.astype("float32"), np.array([0, 0])) for _ in range(20)]
    assert y.dtype == np.float32
    assert losses[-1] < losses[0]


def test_a_module_without_forward_says_so():
    class Empty(tnp.Module):
        pass

    with pytest.raises(NotImplementedError, match="Empty has no forward"):
        Empty()(1)
    with pytest.raises(NotImplementedError, match="Empty has no backward"):
        Empty().backward(1)
