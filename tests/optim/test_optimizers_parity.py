"""Optimisers and clipping against PyTorch in float64, fed with the same gradients step by step."""

import numpy as np
import pytest

from transformer_np import SGD, Adam, AdamW, NoamSchedule, Parameter, clip_grad_norm

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("one_torch_thread")

SHAPES = [(5, 7), (3,), (2, 3, 4)]
N_STEPS = 60


def parameters(rng, dtype="float64"):
    """The same random values as Parameters and as torch parameters."""
    values = [rng.standard_normal(shape).astype(dtype) for shape in SHAPES]
    return [Parameter(v.copy()) for v in values], [torch.nn.Parameter(torch.tensor(v)) for v in values]


def assert_same_path(ours, optimizer, theirs, torch_optimizer, lr=None, tolerance=1e-14):
    """Take N_STEPS steps with both and compare after each."""
    rng = np.random.default_rng(1)
    for step in range(1, N_STEPS + 1):
        for p, t in zip(ours, theirs, strict=True):
            gradient = (rng.standard_normal(p.shape) * 10.0 ** rng.integers(-4, 3)).astype(p.data.dtype)
            p.grad, t.grad = gradient.copy(), torch.tensor(gradient)
        if lr is not None:
            torch_optimizer.param_groups[0]["lr"] = lr(step)
        optimizer.step()
        torch_optimizer.step()
        for p, t in zip(ours, theirs, strict=True):
            assert p.data.dtype == t.detach().numpy().dtype
            assert abs(p.data - t.detach().numpy()).max() <= tolerance * abs(p.data).max(), f"step {step}"


@pytest.mark.parametrize("options", [{"betas": (0.9, 0.98), "eps": 1e-9}, {"betas": (0.5, 0.7), "eps": 0.1}])
def test_adam(options):
    ours, theirs = parameters(np.random.default_rng(0))
    assert_same_path(ours, Adam(ours, 0.01, **options), theirs, torch.optim.Adam(theirs, 0.01, **options))


def test_adam_with_the_papers_schedule():
    ours, theirs = parameters(np.random.default_rng(0))
    options = {"betas": (0.9, 0.98), "eps": 1e-9}

    def lr(step):
        return 512**-0.5 * min(step**-0.5, step * 40**-1.5)

    schedule = NoamSchedule(512, 40)
    assert [schedule(step) for step in range(1, 100)] == pytest.approx([lr(step) for step in range(1, 100)], rel=1e-15)
    assert_same_path(ours, Adam(ours, schedule, **options), theirs, torch.optim.Adam(theirs, 1.0, **options), lr)


@pytest.mark.parametrize("weight_decay", [0.0, 0.01, 0.5])
def test_adamw(weight_decay):
    ours, theirs = parameters(np.random.default_rng(0))
    options = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": weight_decay}
    assert_same_path(ours, AdamW(ours, 0.03, **options), theirs, torch.optim.AdamW(theirs, 0.03, **options))


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_sgd(momentum):
    ours, theirs = parameters(np.random.default_rng(0))
    assert_same_path(
        ours, SGD(ours, 0.01, momentum), theirs, torch.optim.SGD(theirs, 0.01, momentum=momentum), tolerance=1e-13
    )


def test_sgd_momentum_when_the_rate_changes():
    ours, theirs = parameters(np.random.default_rng(0))

    def lr(step):
        return 0.1 / step

    torch_optimizer = torch.optim.SGD(theirs, 1.0, momentum=0.9)
    assert_same_path(ours, SGD(ours, lr, 0.9), theirs, torch_optimizer, lr, tolerance=1e-13)


@pytest.mark.parametrize("kind", [Adam, AdamW, SGD])
def test_float32_stays_float32(kind):
    ours, theirs = parameters(np.random.default_rng(0), "float32")
    torch_optimizer = getattr(torch.optim, kind.__name__)(theirs, 0.01)
    options = {} if kind is SGD else {"betas": (0.9, 0.999), "eps": 1e-8}
    assert_same_path(ours, kind(ours, np.float64(0.01), **options), theirs, torch_optimizer, tolerance=1e-5)


@pytest.mark.parametrize("max_norm", [1e-3, 1.0, 1e6])
def test_clip_grad_norm(max_norm):
    ours, theirs = parameters(np.random.default_rng(0))
    rng = np.random.default_rng(1)
    for p, t in zip(ours, theirs, strict=True):
        p.grad = 3 * rng.standard_normal(p.shape)
        t.grad = torch.tensor(p.grad)
    norm = clip_grad_norm(ours, max_norm)
    torch_norm = torch.nn.utils.clip_grad_norm_(theirs, max_norm).item()
    assert abs(norm - torch_norm) < 1e-14 * norm
    # PyTorch divides by norm + 1e-6, so that it clips a little too much
    surplus = (norm + 1e-6) / norm if norm > max_norm else 1.0
    for p, t in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(p.grad, surplus * t.grad.numpy(), rtol=1e-14)
