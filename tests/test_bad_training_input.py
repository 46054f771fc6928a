"""Bad input to the loss, the optimisers, clipping and saved states, and what a learner does in a notebook."""

import numpy as np
import pytest
from refusals import refuses, used

import transformer_np as tnp
from transformer_np import layers

F32 = np.float32
IDS = np.array([[1, 2, 3], [4, 5, 0]])
LOGITS = np.random.default_rng(1).standard_normal((2, 3, 7)).astype(F32)


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ((LOGITS, IDS[:1]), ValueError, "CrossEntropy: targets must have shape (2, 3), got (1, 3)"),
        ((LOGITS, IDS.tolist()), ValueError, "targets must have shape (2, 3), got [[1, 2, 3], [4, 5, 0]]"),
        ((LOGITS, LOGITS), ValueError, "CrossEntropy: targets must have shape (2, 3), got (2, 3, 7)"),
        ((LOGITS, IDS.astype(F32)), ValueError, "CrossEntropy: targets must hold integers, got float"),
        ((LOGITS, IDS > 0), ValueError, "CrossEntropy: targets must hold integers, got bool of shape (2, 3)"),
        ((LOGITS, IDS + 3), IndexError, "CrossEntropy: targets: id 8 is outside 0..6 (the vocabulary has 7 entries)"),
        ((LOGITS, IDS - 2), IndexError, "CrossEntropy: targets: id -2 is outside 0..6"),
        ((LOGITS.astype(int), IDS), ValueError, "CrossEntropy: logits must hold floating-point numbers, got int64"),
        ((IDS, LOGITS), ValueError, "CrossEntropy: logits must hold floating-point numbers, got int64 of shape (2, 3)"),
        ((LOGITS[:0], IDS[:0]), ValueError, "CrossEntropy: logits is empty: got float32 of shape (0, 3, 7)"),
        ((LOGITS.tolist(), IDS), TypeError, "CrossEntropy: logits must be an array, got list"),
        ((LOGITS, IDS, 3), ValueError, "CrossEntropy: n_tokens 3 is less than the 5 tokens that count here"),
    ],
)
def test_cross_entropy(inputs, error, message):
    loss_fn = tnp.CrossEntropy(0.1, ignore_index=0)
    loss_fn(LOGITS, IDS)
    refuses(error, message, lambda: loss_fn(*inputs), loss_fn)
    loss_fn.backward()
    refuses(RuntimeError, "CrossEntropy.backward: call forward first", loss_fn.backward, loss_fn)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tnp.CrossEntropy(1.0), ValueError, "label_smoothing must be at least 0 and less than 1, got 1.0"),
        (lambda: tnp.CrossEntropy("0.1"), TypeError, "CrossEntropy: label_smoothing must be a number, got str '0.1'"),
        (lambda: tnp.CrossEntropy(spread="most"), ValueError, "spread must be one of 'all', 'others', got 'most'"),
    ],
)
def test_cross_entropy_options(call, error, message):
    refuses(error, message, call)


def build(**options):
    sizes = {"d_model": 8, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1, "d_ff": 12, "max_len": 6}
    return tnp.Transformer(9, 7, **{**sizes, "dropout": 0.2, "seed": 0, **options})


def linear_with_gradient(value=1.0):
    layer = layers.Linear(2, 2, seed=0)
    for p in layer.parameters():
        p.accumulate(np.full(p.shape, value, F32))
    return layer


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: tnp.Adam(m), TypeError, "Adam: pass model.parameters(), got a Linear"),
        (lambda m: tnp.SGD(m.weight, 0.1), TypeError, "SGD: pass model.parameters(), got a Parameter"),
        (lambda m: tnp.Adam(m.named_parameters()), ValueError, "Adam: pass model.parameters(), got a tuple in"),
        (lambda m: tnp.Adam([m.weight.data]), ValueError, "Adam: pass model.parameters(), got a ndarray in the list"),
        (lambda m: tnp.Adam([]), ValueError, "Adam: got no parameters"),
        (lambda m: tnp.Adam([m.weight, m.weight]), ValueError, "a parameter is listed twice: a shared one must be"),
        (lambda m: tnp.Adam(m.parameters(), lr=0), ValueError, "Adam: lr must be positive, got 0"),
        (lambda m: tnp.Adam(m.parameters(), lr=-1.0), ValueError, "Adam: lr must be positive, got -1.0"),
        (lambda m: tnp.Adam(m.parameters(), lr=float("nan")), ValueError, "Adam: lr must be positive, got nan"),
        (lambda m: tnp.Adam(m.parameters(), lr=float("inf")), ValueError, "Adam: lr must be positive, got inf"),
        (lambda m: tnp.Adam(m.parameters(), lr="0.1"), TypeError, "Adam: lr must be a number, got str '0.1'"),
        (lambda m: tnp.Adam(m.parameters(), lr=None), TypeError, "Adam: lr must be a number, got NoneType None"),
        (lambda m: tnp.Adam(m.parameters(), betas=0.9), ValueError, "Adam: betas must be two numbers in 0 <= b < 1"),
        (lambda m: tnp.Adam(m.parameters(), betas=(0.9, 1.0)), ValueError, "Adam: betas must be two numbers in"),
        (lambda m: tnp.Adam(m.parameters(), eps=0), ValueError, "Adam: eps must be positive, got 0"),
        (lambda m: tnp.AdamW(m.parameters(), weight_decay=-1), ValueError, "AdamW: weight_decay must not be negative"),
        (lambda m: tnp.SGD(m.parameters(), 0.1, momentum=1), ValueError, "SGD: momentum must be at least 0 and less"),
    ],
)
def test_optimiser_options(call, error, message):
    layer = linear_with_gradient()
    refuses(error, message, lambda: call(layer), layer)


@pytest.mark.parametrize("make", [tnp.SGD, tnp.Adam, tnp.AdamW])
def test_a_step_without_any_gradient(make):
    layer = layers.Linear(2, 2, seed=0)
    optimiser = make(layer.parameters(), lr=0.1)
    message = f"{make.__name__}.step: no parameter has a gradient: call backward after zero_grad and before step"
    refuses(RuntimeError, message, optimiser.step, layer)
    layer.backward(np.ones_like(layer(np.ones((1, 2), F32))))
    optimiser.zero_grad()  # after backward instead of before: the gradient is gone
    tnp.clip_grad_norm(layer.parameters(), 1.0)
    refuses(RuntimeError, message, optimiser.step, layer)
    assert optimiser.t == 0


@pytest.mark.parametrize(
    ("lr", "error", "message"),
    [
        (lambda step: float("nan"), ValueError, "Adam: lr is nan at step 1"),
        (lambda step: -0.1, ValueError, "Adam: lr is -0.1 at step 1"),
        (lambda step: None, TypeError, "Adam: lr must be a number, got NoneType None"),
        (tnp.NoamSchedule, TypeError, "Adam: lr must be a number, got NoamSchedule"),  # the class, not a schedule
    ],
)
def test_a_schedule_that_gives_no_learning_rate(lr, error, message):
    layer = linear_with_gradient()
    optimiser = tnp.Adam(layer.parameters(), lr=lr)
    refuses(error, message, optimiser.step, layer)
    assert optimiser.t == 0
    assert optimiser.state["m"] == [None, None]


def test_optimiser_states_that_do_not_fit():
    layer = linear_with_gradient()
    optimiser = tnp.Adam(layer.parameters())
    optimiser.step()
    state, who = optimiser.state_dict(), "Adam.load_state_dict:"
    m, of_adamw = state["Adam.m.0"], tnp.AdamW(layer.parameters()).state_dict()
    needed, n = ["Adam.lr", "Adam.m.0", "Adam.m.1", "Adam.t"], "a whole number of at least 0"
    for wrong, message in (
        ({}, f"{who} missing {needed} and 2 more, unexpected nothing"),
        ({name: value for name, value in state.items() if name != "Adam.v.1"}, f"{who} missing ['Adam.v.1'], unexp"),
        ({**state, "Adam.u.0": m}, f"{who} missing nothing, unexpected ['Adam.u.0']"),
        (of_adamw, f"{who} the state is that of AdamW, expected that of Adam"),
        ({**state, "Adam.m.0": m.T[:1]}, f"{who} Adam.m.0 must be float32 of shape (2, 2), got float32 of shape (1,"),
        ({**state, "Adam.m.0": m.astype(float)}, f"{who} Adam.m.0 must be float32 of shape (2, 2), got float64 of sh"),
        ({**state, "Adam.m.0": 3}, f"{who} Adam.m.0 must be float32 of shape (2, 2), got int 3"),
        ({**state, "Adam.t": -1}, f"{who} Adam.t must be {n}, got int -1"),
        ({**state, "Adam.t": 1.5}, f"{who} Adam.t must be {n}, got float 1.5"),
        ({**state, "Adam.t": m}, f"{who} Adam.t must be {n}, got float32 of shape (2, 2)"),
        ({**state, "Adam.lr": np.nan}, f"{who} Adam.lr must be a number above 0, got float nan"),
        ({**state, "Adam.lr": "fast"}, f"{who} Adam.lr must be a number above 0, got str 'fast'"),
    ):
        refuses(ValueError, message, lambda wrong=wrong: optimiser.load_state_dict(wrong), layer)
        after = optimiser.state_dict()
        assert all(after[name].tobytes() == value.tobytes() for name, value in state.items())
    message = f"{who} state must be a dict as from state_dict(), got list ['t']"
    refuses(TypeError, message, lambda: optimiser.load_state_dict(["t"]), layer)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_clipping_gradients_that_are_not_finite(bad):
    layer = linear_with_gradient()
    layer.bias.grad[1] = bad
    message = "clip_grad_norm: the gradient of parameter 1, shape (2,), holds infinity or NaN"
    for max_norm in (1.0, 1e9, float("inf")):
        refuses(FloatingPointError, message, lambda n=max_norm: tnp.clip_grad_norm(layer.parameters(), n), layer)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("float32", 1e30), ("float64", 1e200), ("float32", 1e-30), ("float64", 1e-200), ("float16", 300)],
)
def test_clipping_where_the_squares_overflow_or_vanish(dtype, value):
    p = tnp.Parameter(np.ones(4, dtype))
    p.accumulate(np.full(4, value, dtype))
    precision = 2 * float(np.finfo(dtype).eps)
    assert tnp.clip_grad_norm([p], value) == pytest.approx(2 * value, rel=precision)
    np.testing.assert_allclose(p.grad, value / 2, rtol=precision)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: tnp.clip_grad_norm(m, 1.0), TypeError, "clip_grad_norm: pass model.parameters(), got a Linear"),
        (lambda m: tnp.clip_grad_norm(m.parameters(), 0), ValueError, "clip_grad_norm: max_norm must be a positive"),
        (lambda m: tnp.clip_grad_norm(m.parameters(), "1"), ValueError, "max_norm must be a positive number, got '1'"),
        (lambda m: tnp.clip_grad_norm(m.parameters(), float("nan")), ValueError, "max_norm must be a positive number"),
    ],
)
def test_clipping_options(call, error, message):
    layer = linear_with_gradient()
    refuses(error, message, lambda: call(layer), layer)


def test_model_states_that_do_not_fit():
    layer = used(layers.Linear(2, 3), np.ones((1, 2), F32))
    state = layer.state_dict()
    who = "Linear.load_state_dict:"
    for wrong, message in (
        ({}, f"{who} missing ['bias', 'weight'], unexpected nothing"),
        ({**state, "gamma": state["bias"]}, f"{who} missing nothing, unexpected ['gamma']"),
        ({**state, "bias": state["bias"][:1]}, f"{who} bias must be float32 of shape (3,), got float32 of shape (1,)"),
        ({**state, "weight": state["weight"].T}, f"{who} weight must be float32 of shape (2, 3), got float32"),
        ({**state, "bias": state["bias"].astype(float)}, f"{who} bias must be float32 of shape (3,), got float64"),
    ):
        refuses(ValueError, message, lambda wrong=wrong: layer.load_state_dict(wrong), layer)


def test_gradients_that_do_not_fit_a_parameter():
    layer = linear_with_gradient()
    who = "float32 of shape (2, 2)"
    for wrong in (np.ones(2, F32), np.ones((2, 2))):
        refuses(ValueError, f"Parameter: grad must be {who}", lambda w=wrong: setattr(layer.weight, "grad", w), layer)
        refuses(ValueError, "does not fit a value of", lambda w=wrong: layer.weight.accumulate(w), layer)


def test_an_optimiser_follows_its_model_to_another_dtype():
    layer = linear_with_gradient()
    optimiser = tnp.Adam(layer.parameters(), lr=0.1)
    optimiser.step()
    layer.astype("float64")
    optimiser.step()
    assert {b.dtype.name for name in ("m", "v") for b in optimiser.state[name]} == {"float64"}


def test_notebook_cells_run_twice():
    """Forward twice, then backward: the last forward counts. Backward twice: refused. A step twice: two steps."""
    model, loss_fn = build(dropout=0.0), tnp.CrossEntropy()
    optimiser = tnp.SGD(model.parameters(), lr=0.1)
    losses = [loss_fn(model.forward(IDS, IDS), IDS) for _ in range(2)]
    assert losses[0] == losses[1]
    dlogits = loss_fn.backward()
    model.backward(dlogits)
    gradient = model.output.weight.grad.copy()
    refuses(RuntimeError, "call forward first; each backward uses up one forward", loss_fn.backward, model)
    refuses(RuntimeError, "call forward first. Each backward uses up one", lambda: model.backward(dlogits), model)
    start = model.output.weight.data.copy()
    optimiser.step()
    optimiser.step()
    np.testing.assert_allclose(model.output.weight.data, start - 2 * F32(0.1) * gradient, rtol=0, atol=1e-6)


def test_without_zero_grad_gradients_add_up():
    model = build(dropout=0.0)
    dlogits = np.random.default_rng(0).standard_normal((2, 3, 7)).astype(F32)
    for n in (1, 2, 3):
        model.forward(IDS, IDS)
        model.backward(dlogits)
        if n == 1:
            once = [p.grad.copy() for p in model.parameters()]
        for p, g in zip(model.parameters(), once, strict=True):
            np.testing.assert_allclose(p.grad, n * g, rtol=1e-6)


def test_one_layer_used_twice_in_one_forward_is_refused_by_its_second_backward():
    layer = layers.Linear(3, 3, seed=0)
    y = layer(layer(np.ones((2, 3), F32)))
    dy = layer.backward(np.ones_like(y))
    refuses(RuntimeError, "Each backward uses up one forward", lambda: layer.backward(dy), layer)
