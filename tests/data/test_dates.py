"""Dates come from Babel unchanged, and locales are named as people name them."""

import datetime

import pytest
from babel.dates import format_date
from babel.localedata import locale_identifiers

from transformer_np.data.dates import (
    FORMATS,
    calendar,
    date_formatter,
    date_pairs,
    draw_dates,
    find_locale,
)

DAY = datetime.date(2026, 11, 29)  # a Sunday


def test_korean_and_english_are_as_the_world_writes_them():
    assert date_pairs("en", "ko", [DAY]) == [
        (DAY, "full", "Sunday, November 29, 2026", "2026년 11월 29일 일요일"),
        (DAY, "long", "November 29, 2026", "2026년 11월 29일"),
    ]


@pytest.mark.parametrize("locale", ["en", "ko", "fi", "th", "byn", "ak", "bal_Latn", "tok", "ka", "zh_Hant"])
@pytest.mark.parametrize("format", FORMATS)
def test_formatter_equals_babel_on_every_day_of_a_leap_year(locale, format):
    write = date_formatter(locale, format)
    for date in calendar(datetime.date(2024, 1, 1), datetime.date(2024, 12, 31)):
        assert write(date) == format_date(date, format, locale)


def test_a_locale_may_be_translated_to_itself():
    assert all(pair.source == pair.target for pair in date_pairs("de", "de", [DAY]))


@pytest.mark.parametrize(
    ("name", "code"),
    [("en-US", "en_US"), ("en_US", "en_US"), ("zh-tw", "zh_Hant_TW"), (" ko ", "ko"), ("sr-Latn", "sr_Latn")],
)
def test_locale_spellings(name, code):
    assert str(find_locale(name)) == code


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("korean", "ko"), ("kr", "ko"), ("jp", "ja"), ("germn", "de"), ("fr-FI", "fr_"), ("en_KO", "en_")],
)
def test_unknown_locale_is_named_and_near_ones_suggested(name, suggestion):
    with pytest.raises(ValueError, match=f"unknown locale '{name}'; did you mean .*{suggestion}"):
        find_locale(name)


@pytest.mark.parametrize("name", ["", "../en", "x" * 100, "한국어", "en__US"])
def test_nonsense_locale_is_a_value_error(name):
    with pytest.raises(ValueError, match="unknown locale"):
        find_locale(name)


def test_locale_of_a_wrong_type():
    with pytest.raises(TypeError, match="locale: got None"):
        find_locale(None)


def test_unknown_format():
    with pytest.raises(ValueError, match="'short', expected one of 'full', 'long'"):
        date_formatter("en", "short")


def test_every_suggestion_is_a_real_locale():
    with pytest.raises(ValueError) as error:
        find_locale("portugese")
    codes = str(error.value).split("did you mean ")[1].rstrip("?").split(", ")
    assert set(codes) <= set(locale_identifiers())
    assert codes[0] == "pt"


def test_calendar_counts_the_days_of_two_centuries():
    dates = calendar()
    assert len(dates) == 200 * 365 + 49  # leap years: 50 multiples of 4, less 1900 (2000 is one)
    assert (dates[0], dates[-1]) == (datetime.date(1900, 1, 1), datetime.date(2099, 12, 31))
    with pytest.raises(ValueError, match="must not come after"):
        calendar(DAY, DAY - datetime.timedelta(days=1))


def test_drawn_dates_differ_and_keep_their_front():
    many, few = draw_dates(5000, seed=3), draw_dates(100, seed=3)
    assert len(set(many)) == 5000
    assert many[:100] == few
    assert draw_dates(100, seed=4) != few
    assert sorted(draw_dates(7, 0, DAY, DAY + datetime.timedelta(days=6)))[0] == DAY


@pytest.mark.parametrize("count", [0, -1, 8])
def test_more_dates_than_there_are(count):
    with pytest.raises(ValueError, match="expected 1 to 7"):
        draw_dates(count, 0, DAY, DAY + datetime.timedelta(days=6))
