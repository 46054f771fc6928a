"""Tasks, tokens and batches: everything between a text and the integer arrays a model takes."""

from .batches import Batches
from .characters import CharacterTokenizer
from .date_task import DateTask
from .dates import DatePair, date_pairs, find_locale
from .digits_task import DigitsTask, ImageBatches
from .reverse_task import ReverseTask
from .subwords import SubwordTokenizer
from .text_task import TextBatches, TextTask, help_texts
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
    "DigitsTask",
    "ImageBatches",
    "ReverseTask",
    "SubwordTokenizer",
    "TextBatches",
    "TextTask",
    "Tokenizer",
    "Vocabulary",
    "date_pairs",
    "detokenise",
    "find_locale",
    "help_texts",
    "tokenise",
]
