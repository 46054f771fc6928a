"""The tasks of text, digits and reversal: what is held out is held out, and targets are what they should be."""

import collections
import math
import sys

import numpy as np
import pytest

from transformer_np.data import (
    Batches,
    DigitsTask,
    ImageBatches,
    ReverseTask,
    TextBatches,
    TextTask,
    help_texts,
)

TEXT = "the cat sat on the mat. " * 50  # 1,200 characters


def test_the_last_tenth_of_a_text_is_held_out():
    task = TextTask(TEXT, length=8)
    assert (len(task.train), len(task.validation)) == (1080, 120)
    assert task.tokenizer.decode(np.concatenate([task.train, task.validation])) == TEXT
    with_unknown = TextTask(TEXT[:1080] + "?" * 120, length=8)  # the vocabulary is that of the training part
    assert "?" not in with_unknown.tokenizer.vocabulary
    assert (with_unknown.validation == 3).all()


def test_targets_are_the_characters_that_follow():
    task = TextTask(TEXT, length=8)
    batches = TextBatches(task, batch_size=5, seed=1)
    drawn = list(batches.epoch())
    assert len(drawn) == len(batches) == 1080 // 40
    for ids, targets in drawn:
        assert ids.shape == targets.shape == (5, 8)
        for row, following in zip(ids, targets, strict=True):
            assert task.tokenizer.decode([*row, following[-1]]) in TEXT
            np.testing.assert_array_equal(row[1:], following[:-1])
    again, other = next(iter(batches.epoch(0)))[0], next(iter(batches.epoch(1)))[0]
    np.testing.assert_array_equal(drawn[0][0], again)
    assert (again != other).any()


def test_validation_stretches_cover_the_held_out_part_once():
    task = TextTask(TEXT, length=8)
    ids, targets = task.validation_stretches()
    assert ids.shape == targets.shape == (14, 8)  # of 120 characters 119 have one that follows, 14 stretches of them
    np.testing.assert_array_equal(ids.ravel(), task.validation[:112])
    np.testing.assert_array_equal(targets.ravel(), task.validation[1:113])


def test_unigram_loss_is_that_of_the_frequencies():
    task = TextTask(TEXT, length=8)
    counts = collections.Counter(TEXT[:1080])
    total = 1080 + len(counts) + 4  # one more of each character, and of the four special tokens
    expected = -sum(math.log((counts[c] + 1) / total) for c in TEXT[1080:]) / 120
    assert task.unigram_loss() == pytest.approx(expected, rel=1e-12)


def test_help_texts_repeat_no_paragraph():
    text = help_texts()
    paragraphs = text.split("\n\n")
    assert len(paragraphs) == len(set(paragraphs))
    assert 200_000 < len(text) < 1_000_000
    assert 'The "if" statement is used for conditional execution' in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("abc", 8), r"the text has 3 characters, expected at least 180 to learn from stretches of 8"),
        (("", 8), "the text has 0 characters"),
        ((TEXT, 0), "got length 0, expected 1 or more"),
    ],
)
def test_texts_that_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        TextTask(*arguments)


def test_a_text_from_a_file(tmp_path):
    (tmp_path / "text.txt").write_bytes(TEXT.encode())
    task = TextTask.from_file(tmp_path / "text.txt", 8)
    np.testing.assert_array_equal(task.train, TextTask(TEXT, 8).train)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 " * 500)
    with pytest.raises(ValueError, match=r"latin\.txt is no UTF-8 text"):
        TextTask.from_file(tmp_path / "latin.txt", 8)


def test_a_fifth_of_the_digits_is_held_out():
    datasets = pytest.importorskip("sklearn.datasets")
    digits, task = datasets.load_digits(), DigitsTask(seed=3)
    assert (len(task.train_labels), len(task.test_labels)) == (1438, 359)
    images = np.concatenate([task.train_images, task.test_images])
    labels = np.concatenate([task.train_labels, task.test_labels])
    assert images.dtype == np.float32
    assert images.shape == (1797, 1, 8, 8)
    assert (images.min(), images.max()) == (-1, 1)

    def pairs(images, labels):
        return collections.Counter((image.tobytes(), int(label)) for image, label in zip(images, labels, strict=True))

    originals = (digits.images[:, None] / 8 - 1).astype(np.float32)
    assert pairs(images, labels) == pairs(originals, digits.target)  # each image once, with its own label
    np.testing.assert_array_equal(task.test_labels, DigitsTask(seed=3).test_labels)
    assert (task.test_images != DigitsTask(seed=4).test_images).any()


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match="the task digits needs scikit-learn: pip install scikit-learn"):
        DigitsTask()


def test_image_batches_give_each_image_once_an_epoch():
    labels = np.arange(10)
    images = labels[:, None, None, None] * np.ones((1, 1, 2, 2))
    batches = ImageBatches(images, labels, 4, seed=2)
    assert len(batches) == 3
    first, second = list(batches.epoch(0)), list(batches.epoch(1))
    for epoch in (first, second):
        assert [len(part) for _, part in epoch] == [4, 4, 2]
        assert sorted(np.concatenate([part for _, part in epoch])) == list(range(10))
        assert all((part[:, 0, 0, 0] == numbers).all() for part, numbers in epoch)
    assert (first[0][1] != second[0][1]).any()
    np.testing.assert_array_equal(first[0][1], next(batches.epoch(0))[1])


def test_sequences_and_their_reverses():
    task = ReverseTask(6, n_train=300, n_test=50, seed=1)
    texts = task.train + task.test
    assert (len(task.train), len(task.test), len(set(texts))) == (300, 50, 350)
    assert {len(text) for text in texts} == {3, 4, 5, 6}
    sources, targets = task.ids(task.train)
    assert [task.tokenizer.decode(ids) for ids in sources] == task.train
    assert [task.tokenizer.decode(ids) for ids in targets] == [text[::-1] for text in task.train]
    assert len(Batches(sources, targets, 100)) == 3
    assert task.train == ReverseTask(6, n_train=300, n_test=50, seed=1).train
    assert task.train != ReverseTask(6, n_train=300, n_test=50, seed=2).train


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"longest": 2}, "got longest 2, expected 3 or more"),
        ({"n_test": 0}, "got n_test 0, expected 1 or more"),
        ({"longest": 3}, "got 21,000 sequences to draw, expected at most half of the 17,576"),
    ],
)
def test_reversals_that_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ReverseTask(**arguments)


def test_batches_of_no_size():
    with pytest.raises(ValueError, match="TextBatches: got batch_size 0"):
        TextBatches(TextTask(TEXT, 8), 0)
    with pytest.raises(ValueError, match="ImageBatches: got batch_size 0"):
        ImageBatches(np.zeros((1, 1, 2, 2)), np.zeros(1, int), 0)
