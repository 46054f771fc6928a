"""Real localised dates: the same calendar date as two languages write it.

The wording comes from the Unicode CLDR through Babel, so nothing is downloaded and nobody made the sentences up:

    Sunday, November 29, 2026   (en, full)   ->   2026년 11월 29일 일요일   (ko, full)
    November 29, 2026           (en, long)   ->   2026년 11월 29일          (ko, long)

It is a small translation task with all that makes attention worth having: words move (the year comes first in Korean),
words change form (Finnish "marraskuuta", Russian "ноября"), and a year must be copied digit by digit.

Babel 2.14 to 2.19 writes every date in the Gregorian calendar with the digits 0-9, whatever the locale: Persian and
Bengali get their own words but neither their calendar nor their digits, and Thai writes its era name with the Gregorian
year ("ค.ศ. 2026"). The texts here are exactly what `babel.dates.format_date` returns.
"""

import datetime
import difflib
import re
from operator import attrgetter
from typing import NamedTuple

import numpy as np

FORMATS = ("full", "long")  # CLDR's names; nearly everywhere, "full" has the day of the week and "long" does not
FIRST_DATE = datetime.date(1900, 1, 1)
LAST_DATE = datetime.date(2099, 12, 31)


class DatePair(NamedTuple):
    """One date in one format, as the source locale and as the target locale write it."""

    date: datetime.date
    format: str
    source: str
    target: str


def find_locale(name):
    """Return Babel's `Locale` for a code such as "ko", "en-US", "en_US" or "zh_TW".

    Raises TypeError where `name` is not a string, and ValueError, with the nearest known codes, where Babel has no such
    locale. English language names and country codes are not accepted, but they are understood well enough to suggest
    the right code: "korean" and "kr" both suggest "ko".
    """
    from babel import Locale, UnknownLocaleError

    if not isinstance(name, str):
        raise TypeError(f'locale: got {name!r}, expected a string such as "en" or "ko_KR"')
    try:
        return Locale.parse(name.strip().replace("-", "_"))
    except (UnknownLocaleError, ValueError):
        pass
    close = _close_locale_names(name.strip())
    hint = f"; did you mean {', '.join(close)}?" if close else '; expected a code such as "en" or "ko_KR"'
    raise ValueError(f"unknown locale {name!r}{hint}") from None


def _close_locale_names(name, count=5):
    """Known locale codes near `name`, best first: languages of that country, then similar codes and English names."""
    from babel import Locale
    from babel.languages import get_official_languages
    from babel.localedata import locale_identifiers

    codes = {code.lower(): code for code in sorted(locale_identifiers())}
    names = {english.lower(): code for code, english in Locale("en").languages.items() if code in codes}
    spelling = name.lower().replace("-", "_")
    close = [code for code in get_official_languages(name.upper()) if code in codes]
    close += [(names | codes)[match] for match in difflib.get_close_matches(spelling, names | codes, count, cutoff=0.6)]
    return list(dict.fromkeys(close))[:count]


def date_formatter(locale, format="full"):
    """Return a function from a date to its text, which is exactly what `babel.dates.format_date` returns.

    It is about ten times as fast, which matters for tens of thousands of texts: a pattern such as "EEEE, MMMM d, y" has
    few fields, each takes few values (7 days of the week, 12 months, ...), and Babel writes each value once.

    `locale` is a code or a Babel `Locale`, `format` is "full" or "long". Raises ValueError for any other.
    """
    from babel import Locale
    from babel.dates import DateTimeFormat, get_date_format

    if format not in FORMATS:
        raise ValueError(f"format: got {format!r}, expected one of {', '.join(map(repr, FORMATS))}")
    locale = locale if isinstance(locale, Locale) else find_locale(locale)
    template = get_date_format(format, locale=locale).format  # "%(EEEE)s, %(MMMM)s %(d)s, %(y)s"
    names = dict.fromkeys(re.findall(r"%\((\w+)\)s", template))
    fields = [(name, _PART_OF_FIELD.get(name[0], _whole_date), {}) for name in names]

    def text(date):
        values = {}
        for name, part, written in fields:
            key = part(date)
            if key not in written:
                written[key] = DateTimeFormat(date, locale)[name]
            values[name] = written[key]
        return template % values

    return text


def _whole_date(date):
    return date


# What a CLDR field depends on, by its letter; for a letter that is not here, the whole date.
_PART_OF_FIELD = {
    "E": datetime.date.weekday,
    "c": datetime.date.weekday,
    "M": attrgetter("month"),
    "L": attrgetter("month"),
    "d": attrgetter("day"),
    "y": attrgetter("year"),
    "G": attrgetter("year"),
}


def calendar(first=FIRST_DATE, last=LAST_DATE):
    """Return every date from `first` to `last`, both included: 73,049 of them by default.

    Two centuries on purpose: two hundred years are too many to be learned one by one, so their digits must be copied;
    and the day of the week follows from the rest by no short rule, so it must be translated.
    """
    if last < first:
        raise ValueError(f"dates: the first ({first}) must not come after the last ({last})")
    return [datetime.date.fromordinal(day) for day in range(first.toordinal(), last.toordinal() + 1)]


def draw_dates(count, seed=0, first=FIRST_DATE, last=LAST_DATE):
    """Return `count` different dates between `first` and `last`, in random order fixed by the seed.

    The first n of them stay the same when `count` grows, so a test split taken from the front never changes.
    Raises ValueError where the range holds fewer dates.
    """
    days = (last - first).days + 1
    if not 0 < count <= days:
        raise ValueError(f"dates: got {count} to draw, expected 1 to {max(days, 0)} ({first} to {last})")
    order = np.random.default_rng(seed).permutation(days)[:count].tolist()
    return [datetime.date.fromordinal(first.toordinal() + day) for day in order]


def date_pairs(source_locale, target_locale, dates, formats=FORMATS):
    """Return a `DatePair` for every date in every format, the same format on both sides, dates in the order given.

    The two locales may be the same: the task is then to copy. Raises ValueError for an unknown locale or format.
    """
    dates = list(dates)
    source_locale, target_locale = find_locale(source_locale), find_locale(target_locale)
    columns = []
    for format in formats:
        source, target = date_formatter(source_locale, format), date_formatter(target_locale, format)
        columns.append([DatePair(date, format, source(date), target(date)) for date in dates])
    return [pair for row in zip(*columns, strict=True) for pair in row]
