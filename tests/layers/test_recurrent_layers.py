"""RNN, LSTM and GRU: finite differences through time, PyTorch in float64, masks, and the direction of reading."""

import numpy as np
import pytest
from finite_differences import assert_gradients, randomise

from transformer_np.backend import array_module
from transformer_np.layers import GRU, LSTM, RNN
from transformer_np.module import Module, inference

B, D, T, M = 3, 2, 5, 4  # pairwise distinct, so that no swapped axis can go unseen
FLOAT64 = {"dtype": "float64"}
KINDS = {
    "RNN": RNN,
    "RNN, relu": lambda *sizes, **options: RNN(*sizes, "relu", **options),
    "LSTM": LSTM,
    "GRU": GRU,
}


def n_states(layer):
    """How many states a layer hands from step to step: h, and the LSTM's c."""
    return 2 if isinstance(layer, LSTM) else 1


def sequence_mask(which):
    """(B, T): sentences of 5, 3 and 1 tokens with their padding at the end, at the start, or anywhere."""
    if which == "none":
        return None
    if which == "scattered":
        return np.array([[1, 1, 1, 1, 1], [0, 1, 0, 1, 0], [0, 0, 1, 0, 0]], bool)
    right = np.arange(T) < np.array([5, 3, 1])[:, None]
    return right if which == "right" else right[:, ::-1].copy()


class Joined(Module):
    """A layer with several outputs as one with a single, flat output, so that one upstream array reaches them all."""

    def __init__(self, layer):
        super().__init__(dtype=layer.dtype)
        self.layer = layer

    def forward(self, *inputs):
        outputs = self.layer.forward(*inputs)
        self.shapes = [y.shape for y in outputs]
        return array_module(*outputs).concatenate([y.ravel() for y in outputs])

    def backward(self, dy):
        parts, start = [], 0
        for shape in self.shapes:
            size = int(np.prod(shape))
            parts.append(dy[start : start + size].reshape(shape))
            start += size
        return self.layer.backward(*parts)


def build(kind, rng, which="none", **options):
    """A layer with random parameters, and (x, first states.., mask)."""
    layer = randomise(KINDS[kind](D, M, seed=rng, **options, **FLOAT64), rng)
    states = [rng.standard_normal((B, M)) for _ in range(n_states(layer))]
    return layer, (rng.standard_normal((B, T, D)), *states, sequence_mask(which))


@pytest.mark.parametrize(("which", "reverse"), [("none", False), ("right", False), ("none", True), ("scattered", True)])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind, which, reverse, device):
    layer, inputs = build(kind, np.random.default_rng(7), which, reverse=reverse)
    if device != "numpy":
        import cupy

        layer, inputs = layer.to(device), tuple(a if a is None else cupy.asarray(a) for a in inputs)
    assert_gradients(Joined(layer), inputs)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_without_bias_and_without_the_last_states_gradient(kind):
    layer, (x, *states, mask) = build(kind, np.random.default_rng(1), "right", bias=False)

    class OutputsOnly(Module):
        def forward(self, *inputs):
            return layer.forward(*inputs)[0]

        def backward(self, dy):
            return layer.backward(dy)

    wrapped = OutputsOnly(**FLOAT64)
    wrapped.layer = layer
    assert_gradients(wrapped, (x, *states, mask))


def torch_twin(torch, layer, kind):
    """torch's layer with the same weights: theirs are ours transposed."""
    options = {"nonlinearity": "relu"} if kind == "RNN, relu" else {}
    make = {"LSTM": torch.nn.LSTM, "GRU": torch.nn.GRU}.get(kind, torch.nn.RNN)
    twin = make(D, M, batch_first=True, **options).double()
    for ours, theirs in torch_names(layer):
        getattr(twin, theirs).data = torch.tensor(ours.data.T.copy())
    return twin


def torch_names(layer):
    """Pairs of our parameter and the name of theirs."""
    names = (("weight_ih", "weight_ih_l0"), ("weight_hh", "weight_hh_l0"))
    names += (("bias_ih", "bias_ih_l0"), ("bias_hh", "bias_hh_l0"))
    return [(getattr(layer, ours), theirs) for ours, theirs in names]


@pytest.mark.parametrize("which", ["none", "right"])
@pytest.mark.parametrize("kind", KINDS)
def test_against_torch(kind, which):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    layer, (x, *states, mask) = build(kind, rng, which)
    twin = torch_twin(torch, layer, kind)
    y, *last = layer.forward(x, *states, mask)
    upstream = [rng.standard_normal(a.shape) for a in (y, *last)]
    gradients = layer.backward(*upstream)

    tensors = [torch.tensor(a, requires_grad=True) for a in (x, *states)]
    first = tuple(s[None] for s in tensors[1:])
    sequence = tensors[0]
    if mask is not None:
        pack = torch.nn.utils.rnn.pack_padded_sequence
        sequence = pack(sequence, torch.tensor(mask.sum(1)), batch_first=True, enforce_sorted=False)
    ty, tlast = twin(sequence, first if kind == "LSTM" else first[0])
    if mask is not None:
        ty, _ = torch.nn.utils.rnn.pad_packed_sequence(ty, batch_first=True)
    tlast = tlast if kind == "LSTM" else (tlast,)
    outputs = [ty, *(t[0] for t in tlast)]
    torch.autograd.backward(outputs, [torch.tensor(u) for u in upstream])

    for ours, theirs in zip((y, *last), outputs, strict=True):
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=0, atol=1e-13)
    for ours, theirs in zip(gradients, tensors, strict=True):
        np.testing.assert_allclose(ours, theirs.grad.numpy(), rtol=0, atol=1e-12)
    for ours, theirs in torch_names(layer):
        np.testing.assert_allclose(ours.grad, getattr(twin, theirs).grad.numpy().T, rtol=0, atol=1e-12)


def test_one_step_of_each_by_hand():
    """Sizes of one, with numbers that can be worked out on paper: every weight 0, every bias 0 but one."""
    x, h = np.array([[[2.0]]]), np.array([[0.5]])
    rnn, lstm, gru = RNN(1, 1, **FLOAT64), LSTM(1, 1, **FLOAT64), GRU(1, 1, **FLOAT64)
    for layer in (rnn, lstm, gru):
        for p in layer.parameters():
            p.data[...] = 0
    rnn.weight_ih.data[0, 0], rnn.weight_hh.data[0, 0], rnn.bias_ih.data[0] = 0.5, -1, 0.25
    assert abs(rnn.forward(x, h)[0][0, 0, 0] - np.tanh(1 - 0.5 + 0.25)) < 1e-15
    lstm.weight_ih.data[0, 2] = 1  # g = tanh(2); i = f = o = 1/2
    c = 0.5 * 3.0 + 0.5 * np.tanh(2)
    y, h_last, c_last = lstm.forward(x, h, np.array([[3.0]]))
    assert abs(c_last[0, 0] - c) < 1e-15
    assert abs(y[0, 0, 0] - 0.5 * np.tanh(c)) < 1e-15
    assert h_last[0, 0] == y[0, 0, 0]
    gru.weight_hh.data[0, 2] = 4  # r = z = 1/2, n = tanh(r * 4 h) = tanh(1)
    assert abs(gru.forward(x, h)[0][0, 0, 0] - (0.5 * np.tanh(1) + 0.5 * 0.5)) < 1e-15


@pytest.mark.parametrize("kind", KINDS)
def test_padding_has_no_say_and_the_last_state_is_that_of_the_last_token(kind):
    rng = np.random.default_rng(3)
    layer, (x, *states, mask) = build(kind, rng, "right")
    y, *last = layer.forward(x, *states, mask)
    assert not y[~mask].any()
    alone = [layer.forward(x[i : i + 1, :n], *(s[i : i + 1] for s in states)) for i, n in enumerate(mask.sum(1))]
    for i, n in enumerate(mask.sum(1)):
        np.testing.assert_allclose(y[i, :n], alone[i][0][0], rtol=0, atol=1e-14)
        for ours, theirs in zip(last, alone[i][1:], strict=True):
            np.testing.assert_allclose(ours[i], theirs[0], rtol=0, atol=1e-14)
    x[~mask] = 1e3
    for ours, theirs in zip((y, *last), layer.forward(x, *states, mask), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("which", ["none", "right"])
@pytest.mark.parametrize("kind", KINDS)
def test_reverse_reads_from_the_end(kind, which):
    rng = np.random.default_rng(4)
    layer, (x, *states, mask) = build(kind, rng, which, reverse=True)
    forwards = KINDS[kind](D, M, **FLOAT64).load_state_dict(layer.state_dict())
    y, *last = layer.forward(x, *states, mask)
    flipped, *same = forwards.forward(x[:, ::-1], *states, None if mask is None else mask[:, ::-1])
    np.testing.assert_allclose(y, flipped[:, ::-1], rtol=0, atol=1e-14)
    for ours, theirs in zip(last, same, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_in_two_pieces(kind):
    """The last state of the first piece starts the second, forward and backward: nothing else is carried over."""
    rng = np.random.default_rng(5)
    layer, (x, *states, _) = build(kind, rng)
    y, *last = layer.forward(x, *states)
    dy = rng.standard_normal(y.shape)
    dx, *dfirst = layer.backward(dy)
    whole = [p.grad.copy() for p in layer.parameters()]

    layer.zero_grad()
    second = KINDS[kind](D, M, **FLOAT64).load_state_dict(layer.state_dict())
    y1, *middle = layer.forward(x[:, :2], *states)
    y2, *end = second.forward(x[:, 2:], *middle)
    dx2, *dmiddle = second.backward(dy[:, 2:])
    dx1, *dstart = layer.backward(dy[:, :2], *dmiddle)
    pairs = [(y, np.concatenate([y1, y2], 1)), (dx, np.concatenate([dx1, dx2], 1))]
    pairs += [*zip(last, end, strict=True), *zip(dfirst, dstart, strict=True)]
    pairs += [(g, a.grad + b.grad) for g, a, b in zip(whole, layer.parameters(), second.parameters(), strict=True)]
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_stay_and_outputs_are_copies(kind):
    rng = np.random.default_rng(6)
    layer, inputs = build(kind, rng, "scattered")
    inputs = (*(a[:, :1] if a.ndim == 3 else a for a in inputs[:-1]), inputs[-1][:, :1])  # T = 1: no copy by accident
    before = [a.copy() for a in inputs]
    outputs = layer.forward(*inputs)
    upstream = [rng.standard_normal(y.shape) for y in outputs]
    kept = [u.copy() for u in upstream]
    expected = layer.backward(*upstream)
    for a, b in zip((*inputs, *upstream), (*before, *kept), strict=True):
        np.testing.assert_array_equal(a, b)
    for y in layer.forward(*inputs):
        assert not any(np.may_share_memory(y, a) for a in inputs)
        y[...] = np.nan  # what the caller does with outputs does not reach what is kept
    for a, b in zip(layer.backward(*upstream), expected, strict=True):
        np.testing.assert_array_equal(a, b)
        assert not any(np.may_share_memory(a, u) for u in upstream)


def test_types_and_inference():
    for kind in KINDS.values():
        layer = kind(D, M, seed=0)
        x = np.random.default_rng(0).standard_normal((B, T, D)).astype("float32")
        with inference():
            outputs = layer.forward(x)
        with pytest.raises(RuntimeError, match="call forward first"):
            layer.backward(outputs[0])
        outputs = layer.forward(x)
        assert all(a.dtype == np.float32 for a in (*outputs, *layer.backward(outputs[0])))
        assert all(p.grad.dtype == np.float32 for p in layer.parameters())
        assert all(abs(p.data).max() <= 4**-0.5 for p in layer.parameters())


def test_bad_inputs_are_named_and_change_nothing():
    layer = LSTM(D, M, seed=0, **FLOAT64)
    x = np.zeros((B, T, D))
    y, h, _ = layer.forward(x)
    cases = [
        (lambda: layer.forward(np.zeros((B, T, D + 1))), r"LSTM: x must have shape \(any, any, 2\)"),
        (lambda: layer.forward(x.astype("float32")), "x is float32 but the layer is float64"),
        (lambda: layer.forward(x, h[:, :2]), r"h0 must have shape \(3, 4\), got float64 of shape \(3, 2\)"),
        (lambda: layer.forward(x, h, np.zeros((B + 1, M))), r"c0 must have shape \(3, 4\)"),
        (lambda: layer.forward(x, mask=np.ones((B, T))), r"mask must be boolean of shape \(3, 5\)"),
        (lambda: layer.forward(x, mask=np.ones((T, B), bool)), r"mask must be boolean of shape \(3, 5\)"),
        (lambda: layer.backward(y[:, :2]), r"upstream gradient dy must have shape \(3, 5, 4\)"),
        (lambda: layer.backward(y, h[:2]), r"dh must have shape \(3, 4\)"),
        (lambda: layer.backward(y, h, h[:, :2]), r"dc must have shape \(3, 4\)"),
        (lambda: RNN(D, M, "gelu"), "activation must be one of 'tanh', 'relu'"),
        (lambda: GRU(D, 0), "d_hidden must be an integer of at least 1"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
    layer.backward(y)  # the forward before all those is still there
