"""The bug pool's mistakes with the optimiser, its schedule and its state: each is impossible here."""

import math

import numpy as np
import pytest

import transformer_np as tnp


def parameter(value, gradient, dtype="float64"):
    p = tnp.Parameter(np.array(value, dtype))
    p.accumulate(np.array(gradient, dtype))
    return p


def test_bp45_warm_up_at_step_0():
    lr = tnp.NoamSchedule(512, 4000)
    assert lr(0) == 0.0
    assert lr(1) == pytest.approx(512**-0.5 * 4000**-1.5, rel=1e-14)
    assert [lr(1), lr(4000), lr(16000)] == pytest.approx([1.746928e-07, 6.987712e-04, 3.493856e-04], rel=1e-6)
    with pytest.raises(ValueError, match="warmup_steps must be an integer of at least 1, got 0"):
        tnp.NoamSchedule(512, 0)
    p = parameter([1.0], [0.5])
    tnp.Adam([p], lr=lr).step()  # the first update is step 1, so it does something
    assert p.data[0] == pytest.approx(1 - 1.746928e-07, abs=1e-12)


def test_bp46_adam_epsilon_placement():
    p = parameter([0.0], [1e-8])
    tnp.Adam([p], lr=1e-3, betas=(0.9, 0.999), eps=1e-8).step()
    # After the correction m is g and the root of v is g, so the step is lr g / (g + eps) = lr / 2.
    assert p.data[0] == pytest.approx(-5.0e-4, rel=1e-12)  # eps before the correction: 3.0653e-5


def test_bp47_adam_step_counter():
    p = parameter([0.0], [0.5])
    optimiser = tnp.Adam([p], lr=1e-3, betas=(0.9, 0.999), eps=1e-8)
    assert optimiser.t == 0
    optimiser.step()
    assert optimiser.t == 1
    assert p.data[0] == pytest.approx(-1e-3 * 0.5 / (0.5 + 1e-8), rel=1e-12)  # 0.00099999998
    before = p.data[0]
    optimiser.step()  # a constant gradient: the corrected means stay g and g², and so does the step
    assert p.data[0] - before == pytest.approx(-1e-3 * 0.5 / (0.5 + 1e-8), rel=1e-12)


def test_adam_three_steps_by_hand():
    gradients, (b1, b2), lr, eps = [0.3, -1.2, 0.05], (0.9, 0.98), 0.01, 1e-9
    p = tnp.Parameter(np.array([0.7]))
    optimiser = tnp.Adam([p], lr=lr, betas=(b1, b2), eps=eps)
    x, m, v = 0.7, 0.0, 0.0
    for t, g in enumerate(gradients, 1):
        p.zero_grad()
        p.accumulate(np.array([g]))
        optimiser.step()
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        x -= lr * (m / (1 - b1**t)) / (math.sqrt(v / (1 - b2**t)) + eps)
        assert p.data[0] == pytest.approx(x, rel=1e-14)


def test_adamw_decay_does_not_pass_through_the_means():
    p, plain = parameter([2.0], [0.5]), parameter([2.0], [0.5])
    optimiser = tnp.AdamW([p], lr=0.1, weight_decay=0.3)
    optimiser.step()
    tnp.Adam([plain], lr=0.1, betas=(0.9, 0.999), eps=1e-8).step()
    assert p.data[0] == pytest.approx(plain.data[0] - 0.1 * 0.3 * 2.0, rel=1e-14)
    assert optimiser.state["m"][0][0] == pytest.approx(0.05, rel=1e-14)


def test_sgd_with_momentum_by_hand():
    p = parameter([1.0], [0.5])
    optimiser = tnp.SGD([p], lr=0.1, momentum=0.9)
    optimiser.step()
    assert p.data[0] == pytest.approx(1 - 0.1 * 0.5, rel=1e-14)
    optimiser.step()
    assert p.data[0] == pytest.approx(1 - 0.1 * 0.5 - 0.1 * (0.9 * 0.5 + 0.5), rel=1e-14)


@pytest.mark.parametrize("make", [tnp.SGD, tnp.Adam, tnp.AdamW])
def test_bp70_ravel_returns_a_copy(make):
    # The update must reach a transposed and a strided value just like a contiguous one.
    rng = np.random.default_rng(0)
    value, gradient = rng.standard_normal((2, 3)), rng.standard_normal((2, 3))
    strided = np.zeros((4, 6))
    strided[::2, ::2] = value
    layouts = [tnp.Parameter(value.copy()), tnp.Parameter(value.T.copy().T), tnp.Parameter(strided[::2, ::2])]
    assert [p.data.flags.c_contiguous for p in layouts] == [True, False, False]
    for p in layouts:
        array, optimiser = p.data, make([p], lr=0.1)
        for _ in range(3):
            p.zero_grad()
            p.accumulate(gradient.copy())
            optimiser.step()
        assert p.data is array  # updated in place, so whoever shares the array sees it
        # The contiguous update does its arithmetic in another order: equal up to rounding.
        np.testing.assert_allclose(p.data, layouts[0].data, rtol=1e-14)
    assert not np.allclose(layouts[0].data, value)
    np.testing.assert_array_equal(strided[::2, ::2], layouts[2].data)


def test_bp72_optimiser_state_resumes_bit_for_bit():
    def train(steps, state=None):
        model = tnp.Transformer(6, 7, 8, 2, 1, 1, 16, dropout=0.0, seed=0)
        optimiser = tnp.Adam(model.parameters(), lr=tnp.NoamSchedule(8, 4))
        if state is not None:
            model.load_state_dict(state[0])
            optimiser.load_state_dict(state[1])
        step = tnp.TrainStep(model, tnp.CrossEntropy(), optimiser)
        for i in steps:
            ids = np.random.default_rng(i).integers(1, 6, (2, 4))
            step(ids, ids[:, :-1], ids[:, 1:])
        return model.state_dict(), optimiser.state_dict()

    straight, resumed = train(range(6)), train(range(3, 6), train(range(3)))
    for one, other in zip(straight, resumed, strict=True):
        assert one.keys() == other.keys()
        assert all(one[name].tobytes() == other[name].tobytes() for name in one)
