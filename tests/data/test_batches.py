"""Batches: padded, shifted by one, each pair once, the same for the same seed."""

import numpy as np
import pytest

from transformer_np.data.batches import Batches


def random_pairs(n, seed=0):
    """Sources that start with their own number, so that each can be recognised; targets are the source reversed."""
    rng = np.random.default_rng(seed)
    sources = [[10 + i, *rng.integers(4, 10, rng.integers(0, 9)).tolist()] for i in range(n)]
    return sources, [source[::-1] + [9] * (i % 3) for i, source in enumerate(sources)]


def test_padding_and_shift_by_hand():
    [(src, tgt_in, tgt_out)] = Batches([[5, 6, 7], [8]], [[9], [4, 5]], 2, shuffle=False).epoch()
    assert src.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert tgt_in.tolist() == [[1, 9, 0], [1, 4, 5]]
    assert tgt_out.tolist() == [[9, 2, 0], [4, 5, 2]]
    assert src.dtype == tgt_in.dtype == tgt_out.dtype == np.int64


def test_other_special_ids():
    [(src, tgt_in, tgt_out)] = Batches([[0, 1], [0]], [[1], [0, 0]], 2, shuffle=False, pad=7, bos=8, eos=9).epoch()
    assert src.tolist() == [[0, 1], [0, 7]]
    assert tgt_in.tolist() == [[8, 1, 7], [8, 0, 0]]
    assert tgt_out.tolist() == [[1, 9, 7], [0, 0, 9]]


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("n", "batch_size"), [(65, 16), (64, 16), (1, 16), (7, 1), (5, 100)])
def test_each_pair_comes_once_and_whole(n, batch_size, shuffle, grouped):
    sources, targets = random_pairs(n)
    batches = Batches(sources, targets, batch_size, shuffle=shuffle, group_by_length=grouped)
    seen, count = {}, 0
    for src, tgt_in, tgt_out in batches.epoch(3):
        count += 1
        assert len(src) == len(tgt_in) == len(tgt_out) <= batch_size
        for s, i, o in zip(src.tolist(), tgt_in.tolist(), tgt_out.tolist(), strict=True):
            s, i, o = ([x for x in row if x] for row in (s, i, o))
            assert i[0] == 1
            assert o[-1] == 2
            assert i[1:] == o[:-1]
            seen[s[0] - 10] = (s, o[:-1])
        assert (src != 0).any(axis=0).all()  # no column of padding alone
        assert (tgt_out != 0).any(axis=0).all()
    assert count == len(batches) == -(-n // batch_size)
    assert [seen[i] for i in range(n)] == list(zip(sources, targets, strict=True))


def test_last_batch_of_one():
    sizes = [len(src) for src, _, _ in Batches(*random_pairs(33), 16).epoch()]
    assert sizes == [16, 16, 1]


@pytest.mark.parametrize("grouped", [False, True])
def test_same_seed_and_epoch_same_batches(grouped):
    def epoch(seed, number):
        batches = Batches(*random_pairs(100), 8, seed=seed, group_by_length=grouped)
        return [array.tolist() for batch in batches.epoch(number) for array in batch]

    assert epoch(1, 4) == epoch(1, 4)
    assert epoch(1, 4) != epoch(1, 5)
    assert epoch(1, 4) != epoch(2, 4)


def test_grouping_pads_less():
    def padded(grouped):
        batches = Batches(*random_pairs(512), 32, group_by_length=grouped).epoch()
        return sum((src == 0).sum() + (tgt == 0).sum() for src, _, tgt in batches)

    assert padded(True) < padded(False) / 4


def test_no_shuffle_keeps_the_order():
    sources, targets = random_pairs(20)
    batches = Batches(sources, targets, 6, shuffle=False)
    assert [row[0] for src, _, _ in batches.epoch() for row in src.tolist()] == [source[0] for source in sources]


def test_batches_are_copies():
    batches = Batches(*random_pairs(4), 4, shuffle=False)
    for array in next(batches.epoch()):
        array[:] = 0
    assert all(array.any() for array in next(batches.epoch()))


def test_an_empty_target_is_just_begin_and_end():
    [(_, tgt_in, tgt_out)] = Batches([[5]], [[]], 2).epoch()
    assert (tgt_in.tolist(), tgt_out.tolist()) == ([[1]], [[2]])


@pytest.mark.parametrize(
    ("sources", "targets", "batch_size", "message"),
    [
        ([], [], 4, "no pairs"),
        ([[5]], [[5], [6]], 4, "1 sources and 2 targets"),
        ([[5]], [[5]], 0, "batch_size 0"),
        ([[5], []], [[5], [6]], 4, r"sources\[1\] is empty"),
        ([[5], [6, 0]], [[5], [6]], 4, r"sources\[1\] has the padding id 0"),
        ([[5], [6]], [[0], [6]], 4, r"targets\[0\] has the padding id 0"),
    ],
)
def test_unusable_pairs(sources, targets, batch_size, message):
    with pytest.raises(ValueError, match=message):
        Batches(sources, targets, batch_size)


@pytest.mark.parametrize("bad", [[1.5], ["5"], [True]])
def test_ids_must_be_whole_numbers(bad):
    with pytest.raises(TypeError, match="sources hold"):
        Batches([bad], [[5]], 4)
