"""Tasks, tokens and batches: everything between a text and the integer arrays a model takes."""

from .batches import Batches
from .characters import CharacterTokenizer
from .date_task import DateTask
from .dates import DatePair, date_pairs, find_locale
from .subwords import SubwordTokenizer
from .tokenizer import Tokenizer, detokenise, tokenise
from .vocabulary import BOS, EOS, PAD, UNK, Vocabulary

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "Batches",
    "CharacterTokenizer",
    "DatePair",
    "DateTask",
    "SubwordTokenizer",
    "Tokenizer",
    "Vocabulary",
    "date_pairs",
    "detokenise",
    "find_locale",
    "tokenise",
]
