"""The date task: splits by date, and vocabularies that know the training split only."""

import datetime

import pytest

from transformer_np.data import UNK, Batches, DateTask, tokenise

SMALL = {"n_train": 400, "n_validation": 50, "n_test": 100}


@pytest.fixture(scope="module")
def task():
    return DateTask("en", "ko", **SMALL)


def dates(pairs):
    return {pair.date for pair in pairs}


def test_no_date_is_in_two_splits(task):
    train, validation, test = dates(task.train), dates(task.validation), dates(task.test)
    assert (len(train), len(validation), len(test)) == (400, 50, 100)
    assert len(train | validation | test) == 550


def test_both_formats_of_a_date_are_together(task):
    for split in (task.train, task.validation, task.test):
        assert len(split) == 2 * len(dates(split))
        assert {(pair.date, pair.format) for pair in split} == {(d, f) for d in dates(split) for f in ("full", "long")}


def test_no_test_text_was_seen_in_training(task):
    assert not {pair.source for pair in task.test} & {pair.source for pair in task.train}
    assert not {pair.target for pair in task.test} & {pair.target for pair in task.train}


def test_the_default_test_split_has_a_thousand_dates():
    task = DateTask(n_train=10)
    assert (task.source_locale, task.target_locale) == ("en", "ko")
    assert len(dates(task.test)) == 1000


def test_same_seed_same_task(task):
    again = DateTask("en", "ko", **SMALL)
    assert (again.train, again.validation, again.test) == (task.train, task.validation, task.test)
    assert again.source_tokenizer.vocabulary == task.source_tokenizer.vocabulary
    assert dates(DateTask("en", "ko", seed=1, **SMALL).test) != dates(task.test)


def test_test_dates_do_not_depend_on_the_training_size_or_the_locales(task):
    other = DateTask("de", "fr", **{**SMALL, "n_train": 40})
    assert dates(other.test) == dates(task.test)
    assert dates(other.validation) == dates(task.validation)


def test_vocabularies_hold_the_training_split_and_no_more(task):
    assert set(task.source_tokenizer.vocabulary.tokens[4:]) == {t for p in task.train for t in tokenise(p.source)}
    assert set(task.target_tokenizer.vocabulary.tokens[4:]) == {t for p in task.train for t in tokenise(p.target)}


def test_what_only_the_test_split_has_is_unknown():
    task = DateTask("en", "ko", n_train=1, n_validation=1, n_test=20)
    unseen = {t for p in task.test for t in tokenise(p.source)} - {t for p in task.train for t in tokenise(p.source)}
    assert unseen
    assert all(token not in task.source_tokenizer.vocabulary for token in unseen)
    assert any(UNK in task.encode(pair.source) for pair in task.test)


def test_ids_go_into_batches_and_come_back_as_text(task):
    batches = Batches(*task.ids(task.test), 64, shuffle=False)
    rows = [row for _, _, tgt_out in batches.epoch() for row in tgt_out]
    assert [task.decode(row) for row in rows] == [pair.target for pair in task.test]
    rows = [row for src, _, _ in batches.epoch() for row in src]
    assert [task.source_tokenizer.decode(row) for row in rows] == [pair.source for pair in task.test]


def test_encode_is_what_training_used_whatever_spaces_surround_it(task):
    pair = task.train[0]
    assert task.encode(f"  {pair.source}\n") == task.ids([pair])[0][0]


def test_unknown_words_can_be_told(task):
    assert task.encode("hello") == [UNK]
    assert task.unknown_tokens("hello, November 29, 2026") == ["hello"]
    assert task.unknown_tokens(" November 29, 2026 ") == []


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_empty_text_is_a_clear_error(task, text):
    with pytest.raises(ValueError, match="the text is empty"):
        task.encode(text)


def test_locales_are_kept_in_canonical_form():
    task = DateTask("en-US", "zh-TW", n_train=2, n_validation=1, n_test=1)
    assert (task.source_locale, task.target_locale) == ("en_US", "zh_Hant_TW")


@pytest.mark.parametrize("side", [("korean", "en"), ("en", "korean")])
def test_unknown_locale_on_either_side(side):
    with pytest.raises(ValueError, match="unknown locale 'korean'; did you mean ko"):
        DateTask(*side)


@pytest.mark.parametrize("name", ["n_train", "n_validation", "n_test"])
def test_empty_split(name):
    with pytest.raises(ValueError, match=f"{name} 0, expected 1 or more"):
        DateTask(**{**SMALL, name: 0})


def test_more_dates_than_the_range_holds():
    day = datetime.date(2026, 1, 1)
    with pytest.raises(ValueError, match="got 550 to draw, expected 1 to 365"):
        DateTask(**SMALL, first=day, last=datetime.date(2026, 12, 31))
