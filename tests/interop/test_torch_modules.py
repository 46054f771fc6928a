"""Our layers and PyTorch's hold the same weights: equal outputs, and nothing lost on the way there and back."""

import subprocess
import sys

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.interop.torch import from_torch, to_torch

torch = pytest.importorskip("torch")
nn = torch.nn
layers = tnp.layers

pytestmark = pytest.mark.usefixtures("one_torch_thread")

TOLERANCE = {"rtol": 0, "atol": 1e-12}  # float64; the sums run in another order
SMALL = {"d_model": 8, "n_heads": 2, "d_ff": 12, "dropout": 0.1, "dtype": "float64", "seed": 3}
MODEL = {"n_encoder_layers": 1, "n_decoder_layers": 2, "max_len": 9, **SMALL}
RNG = np.random.default_rng(7)


def shaken(module):
    """Move every weight a little, so that biases and norms are not the zeros and ones they start as."""
    rng = np.random.default_rng(11)
    for p in module.parameters():
        p.data += 0.1 * rng.standard_normal(p.shape)
    return module


def vectors(*shape):
    return RNG.standard_normal(shape)


def assert_same_state(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def tensor(x):
    return torch.from_numpy(x)


@pytest.mark.parametrize("tie", [False, "target", True])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("final_norm", [None, True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_transformer_there_and_back(norm, final_norm, tie, bias):
    model = tnp.Transformer(11, 11, norm=norm, final_norm=final_norm, tie_embeddings=tie, bias=bias, **MODEL)
    shaken(model).eval()
    src, tgt = np.array([[3, 4, 5, 6], [7, 8, 0, 0]]), np.array([[1, 9, 3], [1, 5, 0]])
    theirs = to_torch(model)
    assert isinstance(theirs.transformer, nn.Transformer)
    y = theirs(tensor(src), tensor(tgt)).detach().numpy()
    np.testing.assert_allclose(y, model(src, tgt), **TOLERANCE)
    back = from_torch(theirs)
    assert_same_state(back.state_dict(), model.state_dict())
    given = {**model.config, "seed": None, "final_norm": model.encoder.final_norm is not None}
    assert {**back.config, "seed": None} == given


@pytest.mark.parametrize(
    "options",
    [
        {"positions": "learned"},
        {"position_layout": "halves", "first_position": 1},
        {"activation": "gelu"},
        {"activation": "gelu_tanh"},
        {"activation": "silu"},
        {"activation": "sigmoid"},
        {"eps": 1e-3, "pad_id": 2},
        {"max_len": None},
    ],
    ids=str,
)
def test_options_come_along(options):
    model = shaken(tnp.Transformer(11, 13, **{**MODEL, **options})).eval()
    src, tgt = np.array([[3, 4, 5, 6]]), np.array([[1, 9, 3]])
    theirs = to_torch(model)
    y = theirs(tensor(src), tensor(tgt)).detach().numpy()
    np.testing.assert_allclose(y, model(src, tgt), **TOLERANCE)
    back = from_torch(theirs)
    assert {**back.config, **options} == back.config
    np.testing.assert_array_equal(back(src, tgt), model(src, tgt))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_gradients_are_the_same(norm):
    """The module that comes out can be trained on: one backward through each, tied weights included."""
    model = shaken(tnp.Transformer(11, 11, norm=norm, tie_embeddings=True, **{**MODEL, "dropout": 0.0}))
    src, tgt = np.array([[3, 4, 5, 6], [7, 8, 0, 0]]), np.array([[1, 9, 3], [1, 5, 6]])
    theirs, dy = to_torch(model), vectors(2, 3, 11)
    theirs(tensor(src), tensor(tgt)).backward(tensor(dy))
    model(src, tgt)
    model.backward(dy)
    grads = from_torch_gradients(theirs)
    for name, p in model.named_parameters():
        np.testing.assert_allclose(p.grad, grads[name], rtol=0, atol=1e-11, err_msg=name)


def test_checkpointed_layers_are_the_layers_inside():
    plain = shaken(tnp.Transformer(11, 11, **MODEL))
    kept_small = tnp.Transformer(11, 11, checkpoint=True, **MODEL).load_state_dict(plain.state_dict())
    a, b = to_torch(plain).state_dict(), to_torch(kept_small).state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert a.keys() == b.keys()


def test_a_dropout_of_its_own_within_the_feed_forward_network():
    ours = layers.Encoder(2, 8, 2, 12, 0.1, feed_forward_dropout=0.3)
    theirs = to_torch(ours)
    first = theirs.layers[0]
    assert (first.dropout.p, first.dropout1.p, first.dropout2.p, first.self_attn.dropout) == (0.3, 0.1, 0.1, 0.1)
    back = from_torch(theirs).layers[0]
    assert (back.feed_forward.dropout.p, back.dropout1.p, back.self_attention.attention.dropout.p) == (0.3, 0.1, 0.1)


def from_torch_gradients(module):
    """The gradients by our names: put them where the weights are, and convert."""
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(p.grad)
    return from_torch(module).state_dict()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("widths", [{}, {"d_key": 6, "d_value": 5}])
def test_attention_there_and_back(bias, widths):
    mha = shaken(layers.MultiHeadAttention(8, 4, bias=bias, dropout=0.2, dtype="float64", seed=0, **widths)).eval()
    theirs = to_torch(mha)
    q, k, v = vectors(2, 3, 8), vectors(2, 5, mha.d_key), vectors(2, 5, mha.d_value)
    mask = RNG.random((3, 5)) < 0.6
    mask[:, 0] = True
    y, weights = theirs(tensor(q), tensor(k), tensor(v), attn_mask=tensor(~mask), average_attn_weights=False)
    np.testing.assert_allclose(y.detach().numpy(), mha(q, k, v, mask), **TOLERANCE)
    np.testing.assert_allclose(weights.detach().numpy(), mha.weights, **TOLERANCE)
    back = from_torch(theirs)
    assert back.attention.dropout.p == 0.2
    assert_same_state(back.state_dict(), mha.state_dict())


def test_blockwise_attention_is_attention():
    mha = shaken(layers.MultiHeadAttention(8, 4, attention="blockwise", block=2, dtype="float64", seed=0)).eval()
    q, k = vectors(2, 3, 8), vectors(2, 5, 8)
    y, _ = to_torch(mha)(tensor(q), tensor(k), tensor(k))
    np.testing.assert_allclose(y.detach().numpy(), mha(q, k, k), **TOLERANCE)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(
    ("kind", "n_inputs"),
    [(layers.EncoderLayer, 1), (layers.DecoderLayer, 2), (layers.Encoder, 1), (layers.Decoder, 2)],
)
def test_layers_and_stacks_there_and_back(kind, n_inputs, norm):
    n_layers = {"n_layers": 2} if kind in (layers.Encoder, layers.Decoder) else {}
    ours = shaken(kind(norm=norm, **n_layers, **SMALL)).eval()
    theirs = to_torch(ours)
    inputs = [vectors(2, n, 8) for n in (3, 5)[:n_inputs]]
    y = theirs(*map(tensor, inputs)).detach().numpy()
    np.testing.assert_allclose(y, ours(*inputs), **TOLERANCE)
    assert_same_state(from_torch(theirs).state_dict(), ours.state_dict())


@pytest.mark.parametrize(
    "ours",
    [
        layers.Linear(3, 5, dtype="float64"),
        layers.Linear(3, 5, bias=False, dtype="float64"),
        layers.LayerNorm(3, eps=1e-3, dtype="float64"),
    ],
    ids=["linear", "linear without bias", "layer norm"],
)
def test_single_layers(ours):
    x = vectors(2, 3)
    theirs = to_torch(shaken(ours))
    np.testing.assert_allclose(theirs(tensor(x)).detach().numpy(), ours(x), **TOLERANCE)
    assert_same_state(from_torch(theirs).state_dict(), ours.state_dict())


def test_embedding():
    ours = layers.Embedding(7, 3, scaled=False)
    ids = np.array([[1, 6]])
    np.testing.assert_array_equal(to_torch(ours)(tensor(ids)).detach().numpy(), ours(ids))
    assert_same_state(from_torch(to_torch(ours)).state_dict(), ours.state_dict())


@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")  # PyTorch on its own default
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_a_transformer_made_in_pytorch(batch_first, norm_first):
    """nn.Transformer has final norms also after post-norm layers."""
    options = {"batch_first": batch_first, "norm_first": norm_first, "dropout": 0.0, "dtype": torch.float64}
    module = nn.Transformer(8, 2, 2, 2, 12, **options).eval()
    encoder, decoder = from_torch(module)
    src, tgt = vectors(2, 5, 8), vectors(2, 3, 8)
    order = (lambda x: x) if batch_first else (lambda x: x.swapaxes(0, 1))
    y = module(tensor(order(src)), tensor(order(tgt)))
    np.testing.assert_allclose(order(y.detach().numpy()), decoder(tgt, encoder(src)), **TOLERANCE)
    assert encoder.final_norm is not None
    assert decoder.final_norm is not None


def test_norms_without_bias_get_one_of_zeros():
    module = nn.TransformerEncoderLayer(8, 2, 12, bias=False, batch_first=True, dtype=torch.float64).eval()
    ours, x = from_torch(module), vectors(2, 3, 8)
    np.testing.assert_allclose(module(tensor(x)).detach().numpy(), ours(x), **TOLERANCE)
    assert not ours.norm1.beta.data.any()


@pytest.mark.parametrize(
    ("activation", "name"),
    [
        ("gelu", "gelu"),
        (nn.GELU(), "gelu"),
        (nn.GELU(approximate="tanh"), "gelu_tanh"),
        (nn.ReLU(), "relu"),
        (nn.functional.silu, "silu"),
        (nn.Sigmoid(), "sigmoid"),
    ],
    ids=["gelu", "GELU", "GELU tanh", "ReLU", "silu", "Sigmoid"],
)
def test_activations_of_pytorch(activation, name):
    module = nn.TransformerEncoderLayer(8, 2, 12, activation=activation, batch_first=True, dtype=torch.float64).eval()
    ours, x = from_torch(module), vectors(2, 3, 8)
    assert type(ours.feed_forward.activation) is type(layers.FeedForward(8, 12, name).activation)
    np.testing.assert_allclose(module(tensor(x)).detach().numpy(), ours(x), **TOLERANCE)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_dtype_and_mode_come_along(dtype):
    ours = layers.Linear(3, 5, dtype=dtype).eval()
    theirs = to_torch(ours)
    assert theirs.weight.dtype == getattr(torch, dtype)
    assert not theirs.training
    assert from_torch(theirs).dtype == dtype
    assert not from_torch(theirs).training
    assert from_torch(theirs.train()).training


def test_nothing_is_shared():
    """Training one side leaves the other as it was."""
    ours = layers.Linear(3, 5)
    theirs = to_torch(ours)
    before = ours.state_dict()
    with torch.no_grad():
        theirs.weight.zero_()
    assert_same_state(ours.state_dict(), before)
    back = from_torch(theirs)
    back.weight.data += 1
    assert not theirs.weight.detach().numpy().any()


@pytest.mark.parametrize(
    ("ours", "error", "message"),
    [
        (layers.RMSNorm(8), TypeError, "got RMSNorm, expected Linear"),
        (layers.Embedding(7, 3), ValueError, "scaled=False"),
        (layers.MultiHeadAttention(8, 4, 2), ValueError, "has no n_kv_heads"),
        (layers.MultiHeadAttention(8, 4, rotary="halves", scale=1.0), ValueError, "has no rotary, scale"),
        (layers.MultiHeadAttention(8, 4, d_head=3), ValueError, "has no d_head"),
        (layers.MultiHeadAttention(8, 4, attention="blockwise", causal=True), ValueError, "has no causal"),
        (layers.EncoderLayer(8, 2, 12, gated=True), ValueError, "gated=True"),
        (layers.DecoderLayer(8, 2, 12, norm_layer=layers.RMSNorm), ValueError, "norm_layer=RMSNorm"),
        (layers.Encoder(1, 8, 2, 12, attention={"n_kv_heads": 1}), ValueError, "has no n_kv_heads"),
        (layers.Encoder(1, 8, 2, 12, position_bias=layers.RelativePositionBias(2)), ValueError, "position_bias"),
    ],
    ids=["kind", "scaled", "grouped", "rotary", "d_head", "causal", "gated", "rms", "grouped stack", "position bias"],
)
def test_what_pytorch_lacks(ours, error, message):
    with pytest.raises(error, match=message):
        to_torch(ours)


class Doubled(nn.Linear):
    """A linear map that computes something else than one."""

    def forward(self, x):
        return 2 * super().forward(x)


def derived_part():
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
    layer.linear2 = Doubled(12, 8)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


def mixed_dropout():
    layer = nn.TransformerDecoderLayer(8, 2, 12)
    layer.dropout.p = 0.3
    return layer


def mixed_stack():
    stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, batch_first=True), 2, enable_nested_tensor=False)
    stack.layers[1] = nn.TransformerEncoderLayer(8, 4, 12, batch_first=True)
    return stack


@pytest.mark.parametrize(
    ("module", "error", "message"),
    [
        (lambda: nn.Conv1d(3, 5, 1), TypeError, "got Conv1d, expected Linear"),
        (lambda: 3, TypeError, "got int 3"),
        (lambda: nn.MultiheadAttention(8, 2, add_bias_kv=True), ValueError, "add_bias_kv"),
        (lambda: nn.MultiheadAttention(8, 2, add_zero_attn=True), ValueError, "add_zero_attn"),
        (lambda: nn.LayerNorm((3, 4)), ValueError, r"over one axis, got \(3, 4\)"),
        (lambda: nn.LayerNorm(3, elementwise_affine=False), ValueError, "elementwise_affine"),
        (lambda: nn.Embedding(3, 4, max_norm=1.0), ValueError, "max_norm=1.0"),
        (lambda: nn.Linear(3, 5, dtype=torch.bfloat16), ValueError, "float16, float32 or float64, got"),
        (lambda: nn.TransformerEncoderLayer(8, 2, 12, activation=torch.tanh), ValueError, "activation .* counterpart"),
        (derived_part, TypeError, r"layers\.0\.linear2 is a Doubled, expected one of Dropout, Embedding"),
        (mixed_dropout, ValueError, "dropout must be the same throughout, got 0.1, 0.3"),
        (mixed_stack, ValueError, "every layer's options must be the same"),
    ],
    ids=[
        "kind",
        "no module",
        "bias_kv",
        "zero_attn",
        "axes",
        "affine",
        "max_norm",
        "bfloat16",
        "tanh",
        "derived",
        "dropout",
        "mixed",
    ],
)
def test_what_ours_lack(module, error, message):
    with pytest.raises(error, match=message):
        from_torch(module())


def test_the_package_needs_no_pytorch():
    code = "import sys; sys.modules['torch'] = None; import transformer_np.interop.torch"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
