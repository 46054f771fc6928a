"""GPT and Llama against Hugging Face's, in float64 with the same weights: outputs, loss, gradients, training."""

import numpy as np
import pytest

from transformer_np import AdamW, CrossEntropy, TrainStep

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from decoder_only_twins import V, gpt_twins, llama_twins  # noqa: E402

PAD = 0
TWINS = {
    "GPT": gpt_twins,
    "GPT, untied": lambda: gpt_twins(tie=False),
    "Llama": llama_twins,
    "Llama, tied, one head of keys": lambda: llama_twins(tie=True, n_kv_heads=1),
}

pytestmark = [
    pytest.mark.usefixtures("one_torch_thread"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def batch(rng, side):
    """Texts of 13 tokens down to 2, padded on one side with 0: ids, mask, targets."""
    ids = rng.integers(1, V, (5, 13))
    lengths = np.array([13, 2, 7, 12, 5])[:, None]
    places = np.arange(13)
    mask = places < lengths if side == "right" else places >= 13 - lengths
    ids = np.where(mask, ids, PAD)
    targets = np.concatenate([np.where(mask[:, :-1], ids[:, 1:], PAD), np.full((5, 1), PAD)], 1)
    return ids, mask, targets


def their_loss(theirs, ids, mask, targets):
    """Their logits, with the positions that `generate` gives padded texts, and the mean loss over real targets."""
    real = torch.tensor(mask).long()
    positions = (real.cumsum(-1) - 1).clip(0)
    logits = theirs(torch.tensor(ids), attention_mask=real, position_ids=positions).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, V), torch.tensor(targets).reshape(-1), ignore_index=PAD)
    return logits, loss


def relative(a, b):
    """The largest difference over the largest entry."""
    return abs(a - b).max() / abs(b).max()


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", TWINS)
def test_outputs_loss_and_every_gradient(name, side):
    ours, theirs, pairs = TWINS[name]()
    ids, mask, targets = batch(np.random.default_rng(1), side)
    logits, torch_loss = their_loss(theirs, ids, mask, targets)
    loss_fn = CrossEntropy(ignore_index=PAD)
    mine = ours.forward(ids, mask)
    loss = loss_fn.forward(mine, targets)
    assert relative(mine[mask], logits.detach().numpy()[mask]) < 1e-12
    assert abs(loss - torch_loss.item()) < 1e-12 * loss
    ours.backward(loss_fn.backward())
    torch_loss.backward()
    largest = max(abs(p.grad).max() for _, p, _, _ in pairs)
    errors = {}
    for parameter, p, t, view in pairs:
        gradient = view(t.grad.numpy())
        if parameter.endswith("w_k.bias"):  # truly zero: the same number added to all scores of a row changes nothing
            assert max(abs(p.grad).max(), abs(gradient).max()) < 1e-13 * largest
        else:
            errors[parameter] = relative(p.grad, gradient)
    assert max(errors.values()) < 1e-11, errors


@pytest.mark.parametrize("name", TWINS)
def test_ten_steps_of_adamw(name):
    ours, theirs, pairs = TWINS[name]()
    rng = np.random.default_rng(2)
    step = TrainStep(
        ours, CrossEntropy(ignore_index=PAD), AdamW(ours.parameters(), lr=3e-3, weight_decay=0.1, eps=1e-6)
    )
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=3e-3, weight_decay=0.1, eps=1e-6)
    for _ in range(10):
        ids, mask, targets = batch(rng, "right")
        loss = step(ids, mask, targets)
        optimizer.zero_grad()
        _, torch_loss = their_loss(theirs, ids, mask, targets)
        torch_loss.backward()
        optimizer.step()
        assert abs(loss - torch_loss.item()) < 1e-10 * loss
    for parameter, p, t, view in pairs:
        assert relative(p.data, view(t.detach().numpy())) < 1e-8, parameter
