"""The task of `transformer-np train`: translate dates from one locale to another."""

from .dates import FIRST_DATE, LAST_DATE, date_pairs, draw_dates, find_locale
from .tokenizer import Tokenizer, tokenise
from .vocabulary import Vocabulary


class DateTask:
    """Dates in two languages, split by date, with the vocabularies of the training split.

    The dates are drawn at random between `first` and `last`, and each goes to one split with all its formats, so no
    date is in two of them. A test date is new to the model, its parts are not: with the default sizes every year and
    nearly every day of every month has been seen many times. So the test asks whether the model can translate the parts
    and copy the digits, which is all a date gives it to learn.

    A few locales write no day of the week in "full" (vo, tok, bal_Latn, ms_BN, ms_Arab_BN). As the source of one that
    does, the model would have to compute it; and the two of Brunei write both formats alike from the 10th of a month
    on, so that one source text has two right answers.

    A part of the calendar is enough to learn from, and is ready sooner. The test and validation dates depend on the
    seed, their two sizes and the range alone; the training size and the locales do not change them.

    Parameters
    - source_locale, target_locale: Babel codes, "en" or "zh-TW"; kept as the canonical code ("zh_Hant_TW").
    - n_train, n_validation, n_test: dates in each split; each date gives two pairs, "full" and "long".
    - seed: fixes the drawing.

    Attributes
    - train, validation, test: lists of `DatePair(date, format, source, target)`.
    - source_tokenizer, target_tokenizer: text to ids and back for each side.

    Raises ValueError for an unknown locale, or sizes the range cannot fill.
    """

    def __init__(
        self,
        source_locale="en",
        target_locale="ko",
        *,
        n_train=17_500,
        n_validation=500,
        n_test=1_000,
        seed=0,
        first=FIRST_DATE,
        last=LAST_DATE,
    ):
        sizes = {"n_train": n_train, "n_validation": n_validation, "n_test": n_test}
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"DateTask: got {name} {size}, expected 1 or more")
        self.source_locale, self.target_locale = str(find_locale(source_locale)), str(find_locale(target_locale))
        self.seed = seed
        dates = draw_dates(sum(sizes.values()), seed, first, last)
        held_out = n_test + n_validation
        self.test = self._pairs(dates[:n_test])
        self.validation = self._pairs(dates[n_test:held_out])
        self.train = self._pairs(dates[held_out:])
        self.source_tokenizer = Tokenizer(Vocabulary.from_texts(tokenise(pair.source) for pair in self.train))
        self.target_tokenizer = Tokenizer(Vocabulary.from_texts(tokenise(pair.target) for pair in self.train))

    def _pairs(self, dates):
        return date_pairs(self.source_locale, self.target_locale, dates)

    def __repr__(self):
        return f"DateTask({self.source_locale!r}, {self.target_locale!r}, seed={self.seed})"

    def ids(self, pairs):
        """Return the source ids and the target ids of some pairs, as two lists ready for `Batches`."""
        sources = [self.source_tokenizer.encode(pair.source) for pair in pairs]
        targets = [self.target_tokenizer.encode(pair.target) for pair in pairs]
        return sources, targets

    def encode(self, text):
        """Return the source ids of a text someone typed, spaces around it dropped. Raises ValueError if it is empty.

        Tokens never seen in training become `unk`; `unknown_tokens(text)` names them.
        """
        if not text.strip():
            raise ValueError("DateTask.encode: the text is empty, expected a date such as the ones in `task.test`")
        return self.source_tokenizer.encode(text.strip())

    def unknown_tokens(self, text):
        """Return the words and marks of a source text that training never saw, so that a caller can warn of them."""
        return self.source_tokenizer.unknown_tokens(text.strip())

    def decode(self, ids):
        """Return the target text of some ids, up to the end token."""
        return self.target_tokenizer.decode(ids)
