"""Text to parts of words and back, by the `tokenizers` library: byte-pair encoding, WordPiece and Unigram."""

from operator import index
from pathlib import Path

import numpy as np

from ..files import write_atomically
from .vocabulary import SPECIAL_TOKENS

KINDS = ("bpe", "wordpiece", "unigram")


class SubwordTokenizer:
    """A tokenizer of the `tokenizers` library, such as a tokenizer.json of Hugging Face, in the manners of ours.

    With special=True special tokens are put around a text as the file says (BERT's [CLS] and [SEP], for example), and
    one that is written out in it ([MASK]) is that token. Otherwise every text is a text, "<pad>" too, and has none.
    `pad_id` fills up batches: the file's own padding, or the token <pad>, [PAD], or 0.
    Needs the extra `tokenizers`.
    """

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        padding, names = tokenizer.padding, ("<pad>", "[PAD]")
        known = [i for i in map(tokenizer.token_to_id, names) if i is not None]
        self.pad_id = padding["pad_id"] if padding else (known or [0])[0]
        tokenizer.no_padding()  # a lone text would be filled up to a fixed length
        tokenizer.no_truncation()  # nor is it cut silently: `batch` has max_len
        self._n_ids = max(tokenizer.get_vocab().values(), default=-1) + 1  # some files leave ids out

    def __repr__(self):
        return f"SubwordTokenizer({type(self.tokenizer.model).__name__}, {len(self)} tokens)"

    def __len__(self):
        return self._n_ids

    @classmethod
    def load(cls, path):
        """Read a tokenizer.json, or the one in a folder. Raises FileNotFoundError, and ValueError for another file."""
        tokenizers = _library()
        path = Path(path)
        path = path / "tokenizer.json" if path.is_dir() else path
        if not path.is_file():
            raise FileNotFoundError(f"no tokenizer file at {path}")
        try:
            return cls(tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8")))
        except Exception as error:  # the library raises plain Exception
            raise ValueError(f"{path} is no tokenizer file: {error}") from error

    @classmethod
    def train(cls, texts, vocab_size, kind="bpe"):
        """Learn a vocabulary from an iterable of texts: "bpe" (of bytes, as GPT-2's), "wordpiece" or "unigram".

        The first four tokens are our padding, begin, end and unknown. "bpe" merges the most frequent pair of
        neighbours again and again, and of pairs that are equally frequent the one with the smaller ids; it starts from
        the 256 bytes, so that nothing is unknown. "wordpiece" splits at spaces and marks, and does not bring back how
        many spaces there were; nor does "unigram" a space in front. `vocab_size` is what to reach; a small text gives
        fewer. Raises ValueError for another kind, and for a vocabulary too small for its first tokens; TypeError for a
        text alone.
        """
        library = _library()
        if kind not in KINDS:
            raise ValueError(f"SubwordTokenizer.train: kind must be one of {', '.join(map(repr, KINDS))}, got {kind!r}")
        least = len(SPECIAL_TOKENS) + (256 if kind == "bpe" else 1)
        if vocab_size < least:
            raise ValueError(f"SubwordTokenizer.train: {kind} needs a vocab_size of at least {least}, got {vocab_size}")
        texts = _listed("train", texts)
        if kind != "bpe" and not any(text.strip() for text in texts):
            raise ValueError(f"SubwordTokenizer.train: {kind} needs a text to learn from, got none")
        tokenizer, trainer = _untrained(library, vocab_size, kind)
        tokenizer.train_from_iterator(texts, trainer)
        return cls(tokenizer)

    def encode(self, text, special=False):
        """Return the ids of a text; "" gives [], with special=True what stands around it."""
        self.tokenizer.encode_special_tokens = not special
        return self.tokenizer.encode(text, add_special_tokens=special).ids

    def decode(self, ids, special=False):
        """Return the text of a list or array of ids, without special tokens unless asked for; [] gives "".

        Raises IndexError for an id outside the vocabulary.
        """
        ids = [index(i) for i in ids]
        wrong = [i for i in ids if not 0 <= i < len(self)]
        if wrong:
            raise IndexError(f"SubwordTokenizer.decode: got the id {wrong[0]}, expected 0 to {len(self) - 1}")
        return self.tokenizer.decode(ids, skip_special_tokens=not special)

    def batch(self, texts, special=True, max_len=None):
        """Return ids (B, T) and mask (B, T), True at real tokens, of several texts; padding stands at the end.

        Texts longer than `max_len` lose their end, but not their special tokens. Raises ValueError for no texts, where
        all are empty, and for a `max_len` that leaves no room for the text; TypeError for a text alone.
        """
        texts, n_around = _listed("batch", texts), self.tokenizer.num_special_tokens_to_add(False) if special else 0
        if max_len is not None and index(max_len) <= n_around:  # the library would not cut at all then
            raise ValueError(f"SubwordTokenizer.batch: max_len must be at least {n_around + 1} here, got {max_len}")
        self.tokenizer.encode_special_tokens = not special
        if max_len is not None:
            self.tokenizer.enable_truncation(max_len)
        try:
            rows = [row.ids for row in self.tokenizer.encode_batch(texts, add_special_tokens=special)]
        finally:
            self.tokenizer.no_truncation()
        longest = max(map(len, rows), default=0)
        if longest == 0:
            raise ValueError(f"SubwordTokenizer.batch: got {len(rows)} texts without a single token")
        mask = np.arange(longest) < np.array([len(row) for row in rows])[:, None]
        ids = np.full(mask.shape, self.pad_id)
        ids[mask] = [i for row in rows for i in row]
        return ids, mask

    def save(self, path):
        """Write a tokenizer.json, all or nothing, which `load` and Hugging Face read."""
        write_atomically(path, self.tokenizer.to_str(pretty=True).encode())


def _listed(who, texts):
    """Return the texts as a list; TypeError for a single one, which would be taken apart."""
    if isinstance(texts, str):
        raise TypeError(f"SubwordTokenizer.{who}: texts must be several texts, got the one text {texts!r:.40}")
    return list(texts)


def _library():
    """Import `tokenizers`; say which extra has it where it is missing."""
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError as error:
        raise ImportError("this needs the library tokenizers: pip install transformer_np[tokenizers]") from error
    return tokenizers


def _untrained(library, vocab_size, kind):
    """Return a tokenizer without a vocabulary, and what will train it."""
    models, before, after, trainers = library.models, library.pre_tokenizers, library.decoders, library.trainers
    options = {"vocab_size": vocab_size, "special_tokens": list(SPECIAL_TOKENS), "show_progress": False}
    unknown = SPECIAL_TOKENS[3]
    if kind == "bpe":
        tokenizer = library.Tokenizer(models.BPE())
        tokenizer.pre_tokenizer, tokenizer.decoder = before.ByteLevel(add_prefix_space=False), after.ByteLevel()
        return tokenizer, trainers.BpeTrainer(initial_alphabet=sorted(before.ByteLevel.alphabet()), **options)
    if kind == "wordpiece":
        tokenizer = library.Tokenizer(models.WordPiece(unk_token=unknown))
        tokenizer.pre_tokenizer, tokenizer.decoder = before.BertPreTokenizer(), after.WordPiece()
        return tokenizer, trainers.WordPieceTrainer(**options)
    tokenizer = library.Tokenizer(models.Unigram())
    # The special tokens are pieces like any other here: cut where a text spells one, so that they are not taken.
    spelled = library.Regex("<(?=" + "|".join(token[1:] for token in SPECIAL_TOKENS) + ")")
    tokenizer.pre_tokenizer = before.Sequence([before.Metaspace(), before.Split(spelled, "isolated")])
    tokenizer.decoder = after.Metaspace()
    return tokenizer, trainers.UnigramTrainer(unk_token=unknown, **options)
