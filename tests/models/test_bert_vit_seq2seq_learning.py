"""That the families learn: ViT digits, BERT masked words, and attention what a recurrent state cannot carry."""

import collections
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import transformer_np as tnp

pytestmark = pytest.mark.slow


def test_vit_reads_digits():
    """97 % of a fifth of scikit-learn's 8x8 digits that it never saw."""
    datasets = pytest.importorskip("sklearn.datasets")
    digits = datasets.load_digits()
    images, labels = (digits.images[:, None] / 8 - 1).astype(np.float32), digits.target
    order = np.random.default_rng(0).permutation(len(images))
    held_out, seen = order[: len(order) // 5], order[len(order) // 5 :]
    model = tnp.ViT(8, 2, 1, 10, d_model=48, n_heads=4, n_layers=2, d_ff=96, dropout=0.1)
    n_epochs, batch_size = 30, 64
    n_steps = n_epochs * (len(seen) // batch_size)
    optimizer = tnp.AdamW(model.parameters(), lr=tnp.LinearSchedule(2e-3, n_steps // 10, n_steps))
    step = tnp.TrainStep(model, tnp.CrossEntropy(label_smoothing=0.1), optimizer, clip=1.0)
    rng = np.random.default_rng(1)
    for _ in range(n_epochs):
        shuffled = rng.permutation(seen)
        for start in range(0, len(seen) - batch_size + 1, batch_size):
            batch = shuffled[start : start + batch_size]
            step(images[batch], labels[batch])
    with tnp.inference():
        right = model.eval().forward(images[held_out]).argmax(-1) == labels[held_out]
    assert right.mean() >= 0.97, right.mean()


LENGTH, VOCAB_SIZE, UNKNOWN, MASK = 16, 300, 1, 2


def words_of_pydoc():
    """Ids of the words of Python's own help texts: those of four topics in five, and those of the fifth."""
    from pydoc_data.topics import topics

    texts = [re.findall(r"[a-z]+|[.,:;()]", topics[name].lower()) for name in sorted(topics)]
    seen, held_out = ([w for i, t in enumerate(texts) if (i % 5 == 2) is last for w in t] for last in (False, True))
    frequent = [word for word, _ in collections.Counter(seen).most_common(VOCAB_SIZE - 3)]
    ids = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[MASK]", *frequent])}
    return (np.array([ids.get(word, UNKNOWN) for word in words]) for words in (seen, held_out))


def masked(words, rng, n):
    """n stretches of text with every seventh known word masked, and the words to be filled in (-100 elsewhere)."""
    starts = rng.integers(0, len(words) - LENGTH, n)
    ids = words[starts[:, None] + np.arange(LENGTH)]
    chosen = (rng.random(ids.shape) < 0.15) & (ids != UNKNOWN)
    return np.where(chosen, MASK, ids), np.where(chosen, ids, -100)


def test_bert_fills_masked_words():
    """On topics it never saw, 0.6 nats better than the words' frequencies, and right twice as often.

    For some 300 steps it knows no more than those frequencies; then attention finds the neighbours.
    """
    seen, held_out = words_of_pydoc()
    model = tnp.BERT(VOCAB_SIZE, 64, 4, 2, 256, 0.0, LENGTH, heads="words")
    loss_fn, n_steps = tnp.CrossEntropy(ignore_index=-100), 1500
    optimizer = tnp.AdamW(model.parameters(), lr=tnp.LinearSchedule(3e-3, n_steps // 5, n_steps))
    step, rng = tnp.TrainStep(model, loss_fn, optimizer, clip=1.0), np.random.default_rng(1)
    for _ in range(n_steps):
        step(*masked(seen, rng, 64))

    ids, words = masked(held_out, np.random.default_rng(2), 300)
    with tnp.inference():
        logits = model.eval().forward(ids)
        loss = loss_fn.forward(logits, words)
    asked = words != -100
    right = (logits.argmax(-1) == words)[asked].mean()
    frequency = np.bincount(seen[seen != UNKNOWN], minlength=VOCAB_SIZE) + 1.0
    frequency /= frequency.sum()
    unigram_loss, unigram_right = -np.log(frequency[words[asked]]).mean(), (words[asked] == frequency.argmax()).mean()
    print(f"loss {loss:.3f}, unigram {unigram_loss:.3f}; right {right:.3f}, unigram {unigram_right:.3f}")
    assert loss < unigram_loss - 0.6
    assert right > 2 * unigram_right


def test_a_recurrent_state_loses_long_sentences_and_attention_does_not():
    """benchmarks/copying.py, half as long: at 24 symbols only the two that look back are right."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
    import copying

    right = {}
    for kind in copying.KINDS:
        model, _ = copying.train(kind, 64, 24, 400, 64, 3e-3)
        right[kind] = [copying.evaluate(model, length)["symbols"] for length in (3, 12, 24)]
    for kind in ("LSTM with attention", "Transformer"):
        assert min(right[kind]) > 0.95, right
    short, middle, long = right["LSTM"]
    assert short > 0.9, right
    assert long < middle < short, right
    assert long < 0.7, right
