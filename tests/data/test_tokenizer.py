"""Tokens are words and single digits, and no character is ever lost."""

import datetime
import sys

import pytest
from babel import Locale
from babel.dates import format_date
from babel.localedata import locale_identifiers
from hypothesis import given
from hypothesis import strategies as st

from transformer_np.data.dates import FORMATS, date_formatter
from transformer_np.data.tokenizer import Tokenizer, detokenise, tokenise
from transformer_np.data.vocabulary import Vocabulary

DAYS = [datetime.date(2026, 11, 29), datetime.date(1987, 2, 5), datetime.date(2000, 1, 31)]


def test_every_babel_locale_comes_back_exactly_with_single_digits():
    for name in sorted(locale_identifiers()):
        locale = Locale.parse(name)
        for format in FORMATS:
            write = date_formatter(locale, format)
            for date in DAYS:
                text = format_date(date, format, locale)
                assert write(date) == text, name
                tokens = tokenise(text)
                assert detokenise(tokens) == text, name
                for token in tokens:
                    assert len(token.strip()) == 1 or not any(c.isdecimal() for c in token), (name, token)


@given(st.text(alphabet="a5٥é,_日\n \xa0\u0301\u200c\u200f\u202f𞥙🎂"))
def test_any_mixture_comes_back_exactly(text):
    assert detokenise(tokenise(text)) == text
    assert "" not in tokenise(text)


def test_every_character_of_unicode_comes_back_and_every_digit_alone():
    text = "".join(map(chr, range(sys.maxunicode + 1)))
    assert detokenise(tokenise(text)) == text
    digits = "".join(c for c in text if c.isdecimal())
    assert tokenise(digits) == list(digits)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Sunday, November 29, 2026", ["Sunday", ",", " November", " 2", "9", ",", " 2", "0", "2", "6"]),
        ("2026년 11월 29일 일요일", ["2", "0", "2", "6", "년", " 1", "1", "월", " 2", "9", "일", " 일요일"]),
        ("2026年11月29日", ["2", "0", "2", "6", "年", "1", "1", "月", "2", "9", "日"]),
        ("ноября 2026\u202fг.", ["ноября", " 2", "0", "2", "6", "\u202fг", "."]),  # narrow no-break space
        ("الأحد، ٢٩", ["الأحد", "،", " ٢", "٩"]),  # Arabic comma, Arabic-Indic digits
        ("रविवार, २९", ["रविवार", ",", " २", "९"]),  # vowel signs stay in the word; Devanagari digits
        ("วันอาทิตย์ที่ ๒๙", ["วันอาทิตย์ที่", " ๒", "๙"]),
        ("ഞായറാഴ്\u200cച", ["ഞായറാഴ്\u200cച"]),  # zero-width non-joiner stands inside a Malayalam word
        ("\u200f29/11\u200f", ["\u200f", "2", "9", "/", "1", "1", "\u200f"]),  # right-to-left marks
        ("2026(e)ko", ["2", "0", "2", "6", "(", "e", ")", "ko"]),
        ("a  b\n", ["a", " ", " b", "\n"]),  # two spaces, and one at the end
        ("𞥒𞥙", ["𞥒", "𞥙"]),  # Adlam digits, beyond the 16-bit plane
    ],
)
def test_tokens(text, tokens):
    assert tokenise(text) == tokens


def test_bp_74_tokenizer_on_empty_text():
    tokenizer = Tokenizer(Vocabulary.from_texts([]))
    assert tokenise("") == []
    assert detokenise([]) == ""
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""
    assert tokenizer.unknown_tokens("") == []
    assert len(tokenizer.vocabulary) == 4


def test_decode_stops_at_the_end_and_skips_padding():
    tokenizer = Tokenizer(Vocabulary.from_texts([tokenise("May 5")]))
    vocabulary = tokenizer.vocabulary
    ids = tokenizer.encode("May 5")
    assert tokenizer.decode([vocabulary.bos, *ids, vocabulary.eos, *ids, vocabulary.pad]) == "May 5"
    assert tokenizer.decode([*ids, vocabulary.pad, vocabulary.unk]) == "May 5<unk>"


def test_unknown_tokens_are_named_once_in_order():
    tokenizer = Tokenizer(Vocabulary.from_texts([tokenise("May 5")]))
    assert tokenizer.encode("May 6") == [tokenizer.vocabulary.encode(["May"])[0], tokenizer.vocabulary.unk]
    assert tokenizer.unknown_tokens("June 5 June 6 May") == ["June", "6", "May"]  # " May" inside is another token
