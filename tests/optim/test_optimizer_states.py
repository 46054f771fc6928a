"""The state of an optimiser: what is in it, where it can be taken up, and that nothing is lost on the way."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from transformer_np import SGD, Adam, AdamW, NoamSchedule, Parameter
from transformer_np.backend import array_module, float_dtype

SHAPES = [(3, 4), (5,), (), (80, 70)]  # small ones are updated together, the large one alone
MAKE = {
    "Adam": lambda parameters, lr=0.1: Adam(parameters, lr),
    "AdamW": lambda parameters, lr=0.1: AdamW(parameters, lr, weight_decay=0.2),
    "SGD": lambda parameters, lr=0.1: SGD(parameters, lr),
    "SGD with momentum": lambda parameters, lr=0.1: SGD(parameters, lr, momentum=0.9),
}


@pytest.fixture(params=["float64", "float32", "float16", "bfloat16"])
def dtype(request):
    if request.param == "bfloat16":
        pytest.importorskip("ml_dtypes")
    return float_dtype(request.param)


def parameters_of(dtype, seed=0):
    rng = np.random.default_rng(seed)
    return [Parameter(np.asarray(rng.standard_normal(shape)).astype(dtype)) for shape in SHAPES]


def take_steps(optimizer, numbers):
    """Each step by the gradients of its number."""
    for number in numbers:
        rng = np.random.default_rng([1, number])
        for p in optimizer.parameters:
            gradient = np.asarray(rng.standard_normal(p.shape)).astype(p.data.dtype)
            p.grad = array_module(p.data).asarray(gradient)
        optimizer.step()


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.dtype == other[name].dtype, name
        assert value.tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize("lr", [0.1, NoamSchedule(16, 8)], ids=["number", "schedule"])
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_ten_steps_a_file_and_ten_more_are_twenty_to_the_bit(make, dtype, lr, tmp_path):
    whole = make(parameters_of(dtype), lr)
    take_steps(whole, range(20))
    first = make(parameters_of(dtype), lr)
    take_steps(first, range(10))
    save_file(first.state_dict(), tmp_path / "optimizer.safetensors")
    second = make([Parameter(p.data.copy()) for p in first.parameters], lr)
    second.load_state_dict(load_file(tmp_path / "optimizer.safetensors"))
    take_steps(second, range(10, 20))
    assert_same_bits(second.state_dict(), whole.state_dict())
    for one, other in zip(second.parameters, whole.parameters, strict=True):
        assert one.data.dtype == dtype
        assert one.data.tobytes() == other.data.tobytes()


def test_what_is_in_it():
    """One step from zero: m = (1 - b1) g and v = (1 - b2) g²."""
    p = Parameter(np.array([1.0, 2.0]))
    optimizer = Adam([p], lr=0.5, betas=(0.75, 0.5))
    p.grad = np.array([4.0, -8.0])
    optimizer.step()
    state = optimizer.state_dict()
    assert {name: value.tolist() for name, value in state.items()} == {
        "Adam.t": 1,
        "Adam.lr": 0.5,
        "Adam.m.0": [1.0, -2.0],
        "Adam.v.0": [8.0, 32.0],
    }
    state["Adam.m.0"][:] = 7
    assert optimizer.state["m"][0].tolist() == [1.0, -2.0]  # it was a copy
    optimizer.load_state_dict(state)
    state["Adam.m.0"][:] = 9
    assert optimizer.state["m"][0].tolist() == [7.0, 7.0]  # and is copied again


def test_a_learning_rate_that_was_changed_by_hand_is_kept():
    optimizer, other = Adam(parameters_of("float32"), lr=0.1), Adam(parameters_of("float32"), lr=0.1)
    optimizer.lr *= 1 / 3
    other.load_state_dict(optimizer.state_dict())
    assert other.lr == optimizer.lr


def test_a_number_and_a_schedule_are_not_the_same_training():
    fixed, scheduled = Adam(parameters_of("float32"), 0.1), Adam(parameters_of("float32"), NoamSchedule(16))
    with pytest.raises(ValueError, match=r"missing nothing, unexpected \['Adam.lr'\]"):
        scheduled.load_state_dict(fixed.state_dict())
    with pytest.raises(ValueError, match=r"missing \['Adam.lr'\], unexpected nothing"):
        fixed.load_state_dict(scheduled.state_dict())


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_the_state_before_any_step_begins_anew(make):
    fresh, optimizer = make(parameters_of("float32")), make(parameters_of("float32"))
    take_steps(optimizer, range(3))
    optimizer.load_state_dict(fresh.state_dict())
    for p, q in zip(optimizer.parameters, fresh.parameters, strict=True):
        p.data[...] = q.data
    for one in (optimizer, fresh):
        take_steps(one, range(2))
    assert_same_bits(optimizer.state_dict(), fresh.state_dict())


@pytest.mark.parametrize("mine", [Adam, AdamW, SGD])
@pytest.mark.parametrize("theirs", [Adam, AdamW, SGD])
def test_another_optimiser(mine, theirs):
    optimizer, state = mine(parameters_of("float32"), lr=0.1), theirs(parameters_of("float32"), lr=0.1).state_dict()
    if mine is theirs:
        optimizer.load_state_dict(state)
        return
    with pytest.raises(ValueError, match=f"{mine.__name__}.load_state_dict: the state is that of {theirs.__name__}, "):
        optimizer.load_state_dict(state)


def test_other_parameters():
    state = Adam(parameters_of("float32"), lr=0.1).state_dict()
    for parameters, message in (
        (parameters_of("float32")[:3], r"missing nothing, unexpected \['Adam.m.3', 'Adam.v.3'\]"),
        (parameters_of("float32")[1:], r"unexpected \['Adam.m.3', 'Adam.v.3'\]"),
        (parameters_of("float64"), r"Adam.m.0 must be float64 of shape \(3, 4\), got float32 of shape \(3, 4\)"),
        (parameters_of("float32")[::-1], r"Adam.m.0 must be float32 of shape \(80, 70\), got float32 of shape \(3, "),
    ):
        with pytest.raises(ValueError, match=message):
            Adam(parameters, lr=0.1).load_state_dict(state)


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_from_one_device_to_another(make, xp):
    """The state is NumPy's wherever it comes from, and goes where the parameters are."""
    on_cpu = make(parameters_of("float32"))
    take_steps(on_cpu, range(3))
    on_gpu = make([Parameter(xp.asarray(p.data)) for p in on_cpu.parameters])
    on_gpu.load_state_dict(on_cpu.state_dict())
    assert all(isinstance(buffer, xp.ndarray) for several in on_gpu.state.values() for buffer in several)
    state = on_gpu.state_dict()
    assert all(isinstance(value, np.ndarray) for value in state.values())
    assert_same_bits(state, on_cpu.state_dict())
    take_steps(on_gpu, range(3, 5))
    back = make([Parameter(p.data.get()) for p in on_gpu.parameters])
    back.load_state_dict(on_gpu.state_dict())
    for optimizer in (on_gpu, back):
        take_steps(optimizer, range(5, 7))
    for one, other in zip(back.parameters, on_gpu.parameters, strict=True):
        # A kernel divides and takes roots in another order: a rounding or two at each of the two steps.
        np.testing.assert_allclose(one.data, other.data.get(), rtol=0, atol=1e-6)
