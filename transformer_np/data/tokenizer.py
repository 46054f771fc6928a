"""Text to tokens and back: a token is a word, a single digit or a single mark, with the space before it.

    "Sunday, November 29, 2026"  ->  "Sunday" "," " November" " 2" "9" "," " 2" "0" "2" "6"      (10 tokens)
    "2026년 11월 29일 일요일"      ->  "2" "0" "2" "6" "년" " 1" "1" "월" " 2" "9" "일" " 일요일"      (12 tokens)

Why words, and why single digits:

- The words of dates are a small closed set (7 days, 12 months, a few particles), so every one is seen in training.
- A year is open. As one token, each year would need its own embedding and its own training examples, and a year never
  seen could not be written at all. As four digits it takes ten symbols, and one skill, copying from left to right,
  which is what attention does best and what an attention picture shows best.
- Characters would need no word list, but make a sequence two to three times as long ("Sunday, November 29, 2026" has
  25), and attention costs the square of the length.

Why a space belongs to the token after it, as in GPT-2: the text comes back exactly by joining the tokens, with no rule
about where spaces go in which language, and spaces cost no tokens of their own. The price is that a digit after a space
and a digit after a digit are two tokens (" 2" and "2"), which at ten digits is a small one.

A word is any run of characters that are not space, digit or punctuation. So the vowel signs of Thai and Devanagari and
the joiners of Persian and Malayalam stay inside their word, and a Chinese or Japanese word is the run between digits. A
digit is any character with a decimal value in Unicode, in whatever script.
"""

import re

from .vocabulary import SPECIAL_TOKENS

# ASCII and Latin-1 punctuation, the Arabic comma and its like, general punctuation with the right-to-left marks (except
# the joiners U+200C and U+200D, which stand inside words), CJK and full-width punctuation. Punctuation that is missing
# here is merely glued to its word.
_PUNCTUATION = r"!-/:-@\[-`{-\u00bf\u060c\u061b-\u061f\u2000-\u200b\u200e-\u206f\u3000-\u303f\uff01-\uff0f\uff1a-\uff20"
_TOKEN = re.compile(rf"\s?(?:\d|[^\s\d{_PUNCTUATION}]+|\S)|\s")


def tokenise(text):
    """Split a text into tokens. Every character lands in exactly one token, so nothing is lost; "" gives []."""
    return _TOKEN.findall(text)


def detokenise(tokens):
    """Join tokens into the text they came from: `detokenise(tokenise(text)) == text` for every text."""
    return "".join(tokens)


class Tokenizer:
    """Text to ids and back, with one vocabulary.

    It adds no begin or end token to a text (`Batches` does, for targets), so a source is encoded the same way in
    training and in use.
    """

    def __init__(self, vocabulary):
        self.vocabulary = vocabulary

    def __repr__(self):
        return f"Tokenizer({self.vocabulary!r})"

    def encode(self, text):
        """Return the ids of a text, `unk` for tokens that are not in the vocabulary; "" gives []."""
        return self.vocabulary.encode(tokenise(text))

    def unknown_tokens(self, text):
        """Return the tokens of a text that the vocabulary lacks, each once, in order, without their space."""
        return list(dict.fromkeys(token.strip() for token in tokenise(text) if token not in self.vocabulary))

    def decode(self, ids):
        """Return the text of a list or array of ids, up to the first end token; padding and begin are left out.

        Unknown tokens show as "<unk>". Raises IndexError for an id outside the vocabulary; [] gives "".
        """
        tokens = []
        for token in self.vocabulary.decode(ids):
            if token == SPECIAL_TOKENS[self.vocabulary.eos]:
                break
            if token not in (SPECIAL_TOKENS[self.vocabulary.pad], SPECIAL_TOKENS[self.vocabulary.bos]):
                tokens.append(token)
        return detokenise(tokens)
