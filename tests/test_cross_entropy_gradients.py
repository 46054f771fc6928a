"""Cross-entropy against finite differences, and against what it is by definition."""

import numpy as np
import pytest
from finite_differences import assert_gradients, away_from_kinks

from transformer_np import CrossEntropy

B, T, V = 4, 7, 10
TARGETS = np.array([[3, 4, 5, 2, 0, 0, 0], [9, 9, 9, 9, 9, 9, 2], [2, 0, 0, 0, 0, 0, 0], [8, 7, 6, 5, 4, 3, 1]])


@pytest.mark.parametrize("spread", ["all", "others"])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("ignore_index", [None, 0, -100])
def test_gradients(spread, label_smoothing, ignore_index, device):
    targets = np.where(TARGETS == 0, -100, TARGETS) if ignore_index == -100 else TARGETS

    def build(rng):
        return CrossEntropy(label_smoothing, ignore_index, spread), (2 * rng.standard_normal((B, T, V)), targets)

    assert_gradients(*away_from_kinks(build, device))


@pytest.mark.parametrize("spread", ["all", "others"])
def test_loss_is_the_cross_entropy_of_the_target_distribution(spread):
    rng = np.random.default_rng(0)
    logits, smoothing = 2 * rng.standard_normal((B, T, V)), 0.3
    total, count = 0.0, 0
    for row, target in zip(logits.reshape(-1, V), TARGETS.reshape(-1), strict=True):
        if target == 0:
            continue
        q = np.full(V, smoothing / V) if spread == "all" else np.full(V, smoothing / (V - 2))
        if spread == "others":
            q[0] = q[target] = 0
        q[target] += 1 - smoothing
        assert abs(q.sum() - 1) < 1e-15
        total -= q @ np.log(np.exp(row) / np.exp(row).sum())
        count += 1
    loss = CrossEntropy(smoothing, 0, spread).forward(logits, TARGETS)
    assert abs(loss - total / count) < 1e-14 * abs(loss) * V


def test_parts_of_a_batch_add_up_to_the_whole():
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((B, T, V))
    loss_fn = CrossEntropy(0.1, 0)
    whole = loss_fn.forward(logits, TARGETS)
    dwhole = loss_fn.backward()
    n = int((TARGETS != 0).sum())
    parts, dparts = 0.0, []
    for i in range(B):
        parts += loss_fn.forward(logits[i : i + 1], TARGETS[i : i + 1], n_tokens=n)
        dparts.append(loss_fn.backward())
    assert abs(parts - whole) < 1e-14
    np.testing.assert_allclose(np.concatenate(dparts), dwhole, rtol=1e-13, atol=1e-17)
