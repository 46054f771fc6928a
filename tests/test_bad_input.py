"""Bad input: each a clear error that names the layer, the argument, what came and what was expected; and no change."""

import numpy as np
import pytest
from refusals import refuses, used

import transformer_np as tnp
from transformer_np import layers, masks

F32 = np.float32
X = np.random.default_rng(0).standard_normal((2, 3, 8)).astype(F32)
IDS = np.array([[1, 2, 3], [4, 5, 0]])


def build(**options):
    sizes = {"d_model": 8, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1, "d_ff": 12, "max_len": 6}
    return tnp.Transformer(9, 7, **{**sizes, "dropout": 0.2, "seed": 0, **options})


FLOAT_INPUTS = [
    ([[1.0]], TypeError, "must be an array, got list [[1.0]]"),
    (None, TypeError, "must be an array, got NoneType None"),
    (np.ones((2, 3, 8), int), ValueError, "must hold floating-point numbers, got int64 of shape (2, 3, 8)"),
    (np.ones((2, 3, 8), bool), ValueError, "must hold floating-point numbers, got bool of shape (2, 3, 8)"),
    (np.ones((2, 3, 8), complex), ValueError, "must hold floating-point numbers, got complex128 of shape (2, 3, 8)"),
    (np.ones((0, 3, 8), F32), ValueError, "is empty: got float32 of shape (0, 3, 8)"),
]


@pytest.mark.parametrize(("x", "error", "message"), FLOAT_INPUTS)
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: layers.Linear(8, 4), "Linear: x"),
        (lambda: layers.LayerNorm(8), "LayerNorm: x"),
        (lambda: layers.ReLU(), "ReLU: x"),
        (lambda: layers.Softmax(), "Softmax: x"),
        (lambda: layers.Dropout(0.5), "Dropout: x"),
        (lambda: layers.SinusoidalPositions(8), "SinusoidalPositions: x"),
        (lambda: layers.LearnedPositions(8, 5), "LearnedPositions: x"),
        (lambda: layers.OutputProjection(8, 5), "OutputProjection: x"),
        (lambda: layers.FeedForward(8, 12), "Linear: x"),
        (lambda: layers.EncoderLayer(8, 2, 12), "EncoderLayer: x"),
        (lambda: layers.EncoderLayer(8, 2, 12, norm="pre"), "EncoderLayer: x"),
        (lambda: layers.Encoder(2, 8, 2, 12, norm="pre"), "EncoderLayer: x"),
    ],
)
def test_float_inputs(make, name, x, error, message):
    layer = used(make(), X)
    refuses(error, f"{name} {message}", lambda: layer.forward(x), layer)


@pytest.mark.parametrize(
    ("make", "x", "message"),
    [
        (lambda: layers.Linear(8, 4), X[..., :5], "Linear: x must have last axis 8, got float32 of shape (2, 3, 5)"),
        (lambda: layers.LayerNorm(8), X.swapaxes(1, 2), "LayerNorm: x must have last axis 8, got float32"),
        (lambda: layers.SinusoidalPositions(8), X[0], "SinusoidalPositions: x must have shape (any, any, 8), got"),
        (lambda: layers.LearnedPositions(8, 5), X[..., :4], "LearnedPositions: x must have shape (any, any, 8)"),
        (lambda: layers.OutputProjection(8, 5), X[..., 0], "OutputProjection: x must have last axis 8, got"),
        (lambda: layers.EncoderLayer(8, 2, 12), X[0], "EncoderLayer: x must have shape (any, any, 8), got float32"),
        (
            lambda: layers.Linear(8, 4),
            X.astype(float),
            "Linear: x is float64 but the layer is float32: convert one of them "
            '(x.astype("float32") or layer.astype("float64"))',
        ),
        (lambda: layers.LayerNorm(8), X.astype("float16"), "LayerNorm: x is float16 but the layer is float32"),
        (lambda: layers.EncoderLayer(8, 2, 12), X.astype(float), "EncoderLayer: x is float64 but the layer is float32"),
    ],
)
def test_shapes_and_dtypes(make, x, message):
    layer = used(make(), X)
    refuses(ValueError, message, lambda: layer.forward(x), layer)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((X[0], X, X), "MultiHeadAttention: query must have shape (any, any, 8), got float32 of shape (3, 8)"),
        ((X, X[:1], X[:1]), "MultiHeadAttention: key must have shape (2, any, 8), got float32 of shape (1, 3, 8)"),
        ((X, X, X[:, :2]), "MultiHeadAttention: value must have shape (2, 3, 8), got float32 of shape (2, 2, 8)"),
        ((X, X.astype(float), X), "MultiHeadAttention: key is float64 but the layer is float32"),
        ((X, X, X, np.ones((3, 3))), "MultiHeadAttention: mask must be boolean with True where a query may"),
        ((X, X, X, np.ones((3, 3), int)), "mask must be boolean with True where a query may attend, got int64"),
        ((X, X, X, np.ones((2, 3, 3), bool)), "MultiHeadAttention: mask must have 2 axes (T, S) or 4 axes, got bool"),
        ((X, X, X, np.ones((2, 3), bool)), "mask must broadcast to (2, 2, 3, 3), got bool of shape (2, 3)"),
        ((X, X, X, np.ones(3, bool)), "mask must have 2 axes (T, S) or 4 axes, got bool of shape (3,)"),
        ((X, X, X, np.ones((2, 3, 1, 3), bool)), "mask must broadcast to (2, 2, 3, 3), got bool of shape (2, 3, 1, 3)"),
    ],
)
def test_multi_head_attention(inputs, message):
    layer = used(layers.MultiHeadAttention(8, 2, dropout=0.1, seed=0), X, X, X)
    refuses(ValueError, message, lambda: layer.forward(*inputs), layer)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((X[0, 0], X, X), "ScaledDotProductAttention: q must have at least 2 axes, got float32 of shape (8,)"),
        ((X, X[..., :4], X), "ScaledDotProductAttention: k must have shape (2, any, 8), got float32"),
        ((X, X, X[:, 1:]), "ScaledDotProductAttention: v must have shape (2, 3, any), got float32 of shape (2, 2, 8)"),
        ((X, X, X.astype(float)), "ScaledDotProductAttention: v is float64 but the layer is float32"),
        ((X, X, X, np.tri(3)), "ScaledDotProductAttention: mask must be boolean with True where a query may attend"),
    ],
)
def test_scaled_dot_product_attention(inputs, message):
    layer = used(layers.ScaledDotProductAttention(0.1, seed=0), X, X, X)
    refuses(ValueError, message, lambda: layer.forward(*inputs), layer)


def test_masks_that_are_no_arrays():
    layer = used(layers.MultiHeadAttention(8, 2), X, X, X)
    message = "MultiHeadAttention: mask must be a boolean array, got list [[True]]"
    refuses(TypeError, message, lambda: layer.forward(X, X, X, [[True]]), layer)
    for make_mask, name in ((masks.padding_mask, "padding_mask"), (masks.decoder_mask, "padding_mask")):
        for wrong in ([[1, 0]], np.array([1, 0])):
            refuses(ValueError, f"{name}: ids must be an array (B, S), got", lambda f=make_mask, w=wrong: f(w))


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("stack", [False, True])
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((X[..., :4], X), "DecoderLayer: x must have shape (any, any, 8), got float32 of shape (2, 3, 4)"),
        ((X, X[:1]), "DecoderLayer: memory must have shape (2, any, 8), got float32 of shape (1, 3, 8)"),
        ((X, X.astype(float)), "DecoderLayer: memory is float64 but the layer is float32"),
        ((X, X, np.tri(3)), "DecoderLayer: mask must be boolean with True where a query may attend, got float64"),
        ((X, X, None, np.ones((3, 2), bool)), "DecoderLayer: memory_mask must broadcast to (2, 2, 3, 3), got bool"),
        ((X, X, None, np.ones((3, 3), int)), "DecoderLayer: memory_mask must be boolean with True where"),
    ],
)
def test_decoder(norm, stack, inputs, message):
    options = {"dropout": 0.1, "norm": norm, "seed": 0}
    layer = layers.Decoder(2, 8, 2, 12, **options) if stack else layers.DecoderLayer(8, 2, 12, **options)
    used(layer, X, X)
    refuses(ValueError, message, lambda: layer.forward(*inputs), layer)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_encoder_mask(norm):
    layer = used(layers.Encoder(2, 8, 2, 12, norm=norm, seed=0), X)
    message = "EncoderLayer: mask must be boolean with True where a query may attend, got int64 of shape (2, 1, 1, 3)"
    refuses(ValueError, message, lambda: layer.forward(X, np.ones((2, 1, 1, 3), int)), layer)


BAD_IDS = [
    ([[1, 2]], TypeError, "{} must be an integer array, got list [[1, 2]]"),
    (IDS.astype(float), ValueError, "{} must hold integers, got float64 of shape (2, 3)"),
    (IDS > 1, ValueError, "{} must hold integers, got bool of shape (2, 3)"),
    (np.zeros((0, 3), int), ValueError, "{} is empty: got int64 of shape (0, 3)"),
    (np.zeros((2, 0), int), ValueError, "{} is empty: got int64 of shape (2, 0)"),
    (IDS - 1, IndexError, "{}: id -1 is outside 0.."),
    (IDS + 9, IndexError, "{}: id 14 is outside 0.."),
]


@pytest.mark.parametrize(("ids", "error", "message"), BAD_IDS)
def test_ids(ids, error, message):
    embedding, model = used(layers.Embedding(9, 8), IDS), used(build(), IDS, IDS)
    refuses(error, message.format("Embedding: ids"), lambda: embedding.forward(ids), embedding)
    refuses(error, message.format("Transformer: src"), lambda: model.forward(ids, IDS), model)
    refuses(error, message.format("Transformer: tgt"), lambda: model.forward(IDS, ids), model)
    refuses(error, message.format("Transformer: src"), lambda: tnp.greedy(model, ids, 3), model)


def test_the_message_names_the_vocabulary():
    message = "Transformer: tgt: id 8 is outside 0..6 (the vocabulary has 7 entries)"
    refuses(IndexError, message, lambda: build().forward(IDS, IDS + 3))


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((IDS[0], IDS), "Transformer: src must have 2 axes, got int64 of shape (3,)"),
        ((IDS, IDS[..., None]), "Transformer: tgt must have 2 axes, got int64 of shape (2, 3, 1)"),
        ((IDS, IDS[:1]), "Transformer: src and tgt must have the same batch size, got (2, 3) and (1, 3)"),
        ((np.ones((2, 7), int), IDS), "length 7 from position 0 passes max_len 6: shorten the sequence or build the"),
        ((IDS, np.ones((2, 7), int)), "length 7 from position 0 passes max_len 6: shorten the sequence or build the"),
        (
            (IDS, IDS, (IDS != 0).astype(F32)),
            "Transformer: src_mask must be boolean of shape (2, 3), True at real tokens, got float32 of shape (2, 3)",
        ),
        (
            (IDS, IDS, None, (IDS != 0).astype(int)),
            "Transformer: tgt_mask must be boolean of shape (2, 3), True at real tokens, got int64 of shape (2, 3)",
        ),
        ((IDS, IDS, (IDS != 0)[:, None, None]), "Transformer: src_mask must be boolean of shape (2, 3)"),
        ((IDS, IDS, (IDS != 0).tolist()), "Transformer: src_mask must be boolean of shape (2, 3), True at real tokens"),
        ((IDS, IDS, None, (IDS != 0)[:, :2]), "Transformer: tgt_mask must be boolean of shape (2, 3)"),
    ],
)
def test_transformer(norm, positions, inputs, message):
    model = used(build(norm=norm, positions=positions), IDS, IDS)
    refuses(ValueError, message, lambda: model.forward(*inputs), model)


def test_after_a_refused_call_backward_belongs_to_the_call_before():
    model = build(dtype="float64")
    dlogits = np.random.default_rng(0).standard_normal((2, 3, 7))
    model.replay_dropout(True)
    model.forward(IDS, IDS)
    model.backward(dlogits)
    expected = [p.grad.copy() for p in model.parameters()]
    model.zero_grad()
    model.forward(IDS, IDS)
    for inputs in ((IDS[::-1], np.ones((2, 7), int)), (IDS[::-1], IDS, None, IDS), (IDS[::-1], IDS + 9)):
        with pytest.raises((ValueError, IndexError)):
            model.forward(*inputs)
    model.backward(dlogits)
    for p, gradient in zip(model.parameters(), expected, strict=True):
        np.testing.assert_array_equal(p.grad, gradient)


CALLS = {
    "Linear": (lambda: layers.Linear(8, 4), (X,), "Linear"),
    "Embedding": (lambda: layers.Embedding(9, 8), (IDS,), "Embedding"),
    "SinusoidalPositions": (lambda: layers.SinusoidalPositions(8), (X,), "SinusoidalPositions"),
    "LearnedPositions": (lambda: layers.LearnedPositions(8, 5), (X,), "LearnedPositions"),
    "LayerNorm": (lambda: layers.LayerNorm(8), (X,), "LayerNorm"),
    "ReLU": (lambda: layers.ReLU(), (X,), "ReLU"),
    "Softmax": (lambda: layers.Softmax(), (X,), "Softmax"),
    "Dropout": (lambda: layers.Dropout(0.5), (X,), "Dropout"),
    "attention": (lambda: layers.ScaledDotProductAttention(0.1), (X, X, X), "ScaledDotProductAttention"),
    "MultiHeadAttention": (lambda: layers.MultiHeadAttention(8, 2), (X, X, X), "Linear"),
    "FeedForward": (lambda: layers.FeedForward(8, 12), (X,), "Linear"),
    "OutputProjection": (lambda: layers.OutputProjection(8, 5), (X,), "OutputProjection"),
    "EncoderLayer post": (lambda: layers.EncoderLayer(8, 2, 12), (X,), "LayerNorm"),
    "EncoderLayer pre": (lambda: layers.EncoderLayer(8, 2, 12, norm="pre"), (X,), "Dropout"),
    "Encoder pre": (lambda: layers.Encoder(2, 8, 2, 12, norm="pre"), (X,), "LayerNorm"),
    "DecoderLayer pre": (lambda: layers.DecoderLayer(8, 2, 12, norm="pre"), (X, X), "Dropout"),
    "Decoder post": (lambda: layers.Decoder(2, 8, 2, 12), (X, X), "LayerNorm"),
    "Transformer": (lambda: build(), (IDS, IDS), "OutputProjection"),
}


@pytest.mark.parametrize("name", CALLS)
def test_backward_before_forward(name):
    make, inputs, says = CALLS[name]
    layer = make()
    dy = np.ones_like(layer.forward(*inputs))
    layer.backward(dy)
    message = f"{says}.backward: call forward first. Each backward uses up one forward"
    refuses(RuntimeError, message, lambda: layer.backward(dy), layer)
    refuses(RuntimeError, message, lambda: make().backward(dy))
    with tnp.inference():
        layer.forward(*inputs)
    refuses(RuntimeError, "inside tnp.inference() nothing is kept", lambda: layer.backward(dy), layer)


@pytest.mark.parametrize("name", CALLS)
def test_upstream_gradients_that_do_not_fit(name):
    make, inputs, says = CALLS[name]
    layer = used(make(), *inputs)
    dy = np.ones_like(layer.forward(*inputs))
    who = f"{says}: upstream gradient dy"
    shape = dy.shape if says != "Linear" or name == "Linear" else layer.forward(*inputs).shape
    for wrong, error, message in (
        (dy[:1], ValueError, f"{who} must have shape {shape}, got float32 of shape {dy[:1].shape}"),
        (dy[0], ValueError, f"{who} must have shape {shape}, got float32 of shape {dy[0].shape}"),
        (dy[..., None], ValueError, f"{who} must have shape {shape}, got float32"),
        (dy.astype(float), ValueError, f"{who} is float64 but the layer is float32"),
        (dy.astype(int), ValueError, f"{who} must hold floating-point numbers, got int64"),
        (None, TypeError, f"{who} must be an array, got NoneType None"),
        (1.0, TypeError, f"{who} must be an array, got float 1.0"),
        (dy.tolist(), TypeError, f"{who} must be an array, got list"),
    ):
        refuses(error, message, lambda wrong=wrong: layer.backward(wrong), layer)
    layer.backward(dy)  # nothing was used up


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: layers.Linear(0, 3), ValueError, "Linear: d_in must be an integer of at least 1, got 0"),
        (lambda: layers.Linear(3, 4.0), ValueError, "Linear: d_out must be an integer of at least 1, got 4.0"),
        (lambda: layers.Linear(True, 4), ValueError, "Linear: d_in must be an integer of at least 1, got True"),
        (lambda: layers.Linear(2, 2, dtype="int32"), ValueError, "Linear: dtype must be a floating-point type, got"),
        (lambda: layers.Linear(2, 2).astype("int32"), ValueError, "Linear.astype: dtype must be a floating-point type"),
        (lambda: layers.Embedding(-1, 3), ValueError, "Embedding: vocab_size must be an integer of at least 1, got -1"),
        (lambda: layers.SinusoidalPositions(8, 0), ValueError, "SinusoidalPositions: max_len must be an integer of at"),
        (lambda: layers.LearnedPositions(8, None), ValueError, "LearnedPositions: max_len must be an integer of at"),
        (lambda: layers.LayerNorm(4, 0), ValueError, "LayerNorm: eps must be positive, got 0"),
        (lambda: layers.LayerNorm(4, "float64"), TypeError, "LayerNorm: eps must be a number, got str 'float64'"),
        (lambda: layers.Dropout(1), ValueError, "Dropout: p must be at least 0 and less than 1, got 1"),
        (lambda: layers.Dropout(-0.1), ValueError, "Dropout: p must be at least 0 and less than 1, got -0.1"),
        (lambda: layers.Dropout(float("nan")), ValueError, "Dropout: p must be at least 0 and less than 1, got nan"),
        (lambda: layers.Dropout("0.1"), TypeError, "Dropout: p must be a number, got str '0.1'"),
        (lambda: layers.MultiHeadAttention(8, 3), ValueError, "d_model 8 must be a multiple of n_heads 3"),
        (lambda: layers.MultiHeadAttention(8, 0), ValueError, "n_heads must be an integer of at least 1, got 0"),
        (lambda: layers.MultiHeadAttention(8, 2, d_key=0), ValueError, "d_key must be an integer of at least 1, got 0"),
        (lambda: layers.FeedForward(8, 16, "swish!"), ValueError, "FeedForward: activation must be one of 'relu'"),
        (lambda: layers.EncoderLayer(8, 2, 16, norm="Post"), ValueError, "one of 'post', 'pre', got 'Post'"),
        (lambda: layers.Encoder(0, 8, 2, 16), ValueError, "Encoder: n_layers must be an integer of at least 1, got 0"),
        (
            lambda: layers.OutputProjection(8, 5, layers.Embedding(5, 4).weight),
            ValueError,
            "OutputProjection: tied weight must have shape (5, 8), got (5, 4)",
        ),
        (lambda: build(positions="rope?"), ValueError, "positions must be one of 'sinusoidal', 'learned'"),
        (lambda: build(tie_embeddings="both"), ValueError, "tie_embeddings must be one of False, True, 'target', got"),
        (
            lambda: build(tie_embeddings=True),
            ValueError,
            "Transformer: tie_embeddings=True needs one vocabulary, got 9 source and 7 target tokens; "
            'tie_embeddings="target" ties the target embedding and the output only',
        ),
        (lambda: build(n_decoder_layers=0), ValueError, "Decoder: n_layers must be an integer of at least 1, got 0"),
        (lambda: build().to("tpu"), ValueError, 'device: got \'tpu\', expected "numpy" (or "cpu") or "cupy"'),
        (lambda: tnp.NoamSchedule(8, 4.0), ValueError, "warmup_steps must be an integer of at least 1, got 4.0"),
        (lambda: tnp.NoamSchedule(8, 4)(-1), ValueError, "NoamSchedule: step must not be negative, got -1"),
        (lambda: tnp.greedy(build(), IDS, 0), ValueError, "greedy: max_len must be at least 1, got 0"),
        (lambda: tnp.greedy(build(max_len=None), IDS), ValueError, "so max_len must be given"),
    ],
)
def test_wrong_options(call, error, message):
    refuses(error, message, call)


def test_a_single_numpy_id_leaves_the_table_as_it_was():
    # data[ids] is a view where ids is one NumPy integer; scaling it in place would change the table itself.
    embedding = layers.Embedding(5, 4, seed=0)
    before = embedding.weight.data.copy()
    y = embedding(np.int64(3))
    np.testing.assert_array_equal(embedding.weight.data, before)
    np.testing.assert_array_equal(y, before[3] * F32(2))
    embedding.backward(np.ones(4, F32))
    np.testing.assert_array_equal(embedding.weight.grad, 2 * np.eye(5, dtype=F32)[3][:, None] * np.ones(4, F32))
