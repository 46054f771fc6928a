"""GPT learns Python's own help texts, letter by letter, just as Hugging Face's GPT-2 does on the same batches."""

import pydoc_data.topics

import numpy as np
import pytest

import transformer_np as tnp

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from decoder_only_twins import gpt_twins  # noqa: E402

N_STEPS, N_TEXTS, T = 100, 8, 32
ADAMW = {"lr": 1e-2, "weight_decay": 0.1, "eps": 1e-8}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("one_torch_thread"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def letters():
    """The help texts as ids of letters, the last tenth for validation, and how many letters there are."""
    text = "".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    alphabet = sorted(set(text))
    ids = np.array([alphabet.index(letter) for letter in text[:60_000]])
    return ids[:54_000], ids[54_000:], len(alphabet)


def batch(ids, rng):
    """Stretches of T + 1 letters from random places: what the model reads, and what it should say."""
    starts = rng.integers(0, len(ids) - T, N_TEXTS)[:, None]
    stretch = ids[starts + np.arange(T + 1)]
    return stretch[:, :-1], stretch[:, 1:]


def twins(dtype, n_letters):
    """Ours with GPT-2's first weights, and theirs with the same."""
    ours, theirs, pairs = gpt_twins(vocab_size=n_letters, d_model=32, max_len=T, dtype=dtype)
    fresh = tnp.GPT(**{**ours.config, "seed": 1, "dtype": dtype})
    ours.load_state_dict(fresh.state_dict())
    for _, p, t, view in pairs:
        view(t.detach().numpy())[...] = p.data
    return ours, theirs


def losses(dtype):
    """Train both; return our losses, theirs, and both validation losses at the end."""
    train, validation, n_letters = letters()
    ours, theirs = twins(dtype, n_letters)
    loss_fn = tnp.CrossEntropy()
    step = tnp.TrainStep(ours, loss_fn, tnp.AdamW(ours.parameters(), **ADAMW))
    optimizer = torch.optim.AdamW(theirs.parameters(), **ADAMW)

    def torch_loss(ids, targets):
        return torch.nn.functional.cross_entropy(theirs(torch.tensor(ids)).logits.mT, torch.tensor(targets))

    rng, mine, others = np.random.default_rng(0), [], []
    for _ in range(N_STEPS):
        ids, targets = batch(train, rng)
        mine.append(step(ids, targets))
        optimizer.zero_grad()
        loss = torch_loss(ids, targets)
        loss.backward()
        optimizer.step()
        others.append(loss.item())
    ids = validation[: len(validation) // T * T + 1]
    ids, targets = ids[:-1].reshape(-1, T), ids[1:].reshape(-1, T)
    with tnp.inference(), torch.no_grad():
        at_end = loss_fn.forward(ours.eval().forward(ids), targets), torch_loss(ids, targets).item()
    gap = np.abs(np.subtract(mine, others)).max()
    print(f"{dtype}: validation {at_end[0]:.6f}, theirs {at_end[1]:.6f}, largest difference of a loss {gap:.1e}")
    return mine, others, *at_end


def test_in_float64_every_loss_is_the_twins():
    mine, theirs, validation, their_validation = losses("float64")
    np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    assert validation == pytest.approx(their_validation, rel=1e-6)
    assert mine[0] > 4  # about the logarithm of the number of letters
    assert validation < mine[0] - 1  # a hundred steps are enough for how frequent each letter is


def test_in_float32_it_ends_where_the_twin_ends():
    # Rounding is amplified from step to step, so single losses differ by up to some percent; the end must not.
    _, _, validation, their_validation = losses("float32")
    assert validation == pytest.approx(their_validation, rel=0.01)
