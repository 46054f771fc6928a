"""Text to characters and back: the smallest vocabulary, the longest sequences, and nothing to train."""

from .vocabulary import SPECIAL_TOKENS, Vocabulary


class CharacterTokenizer:
    """One token for each character: each code point of Unicode, so an accent may be a character of its own.

    `vocabulary` holds the four special tokens and the characters. Like `Tokenizer`, it adds no begin or end token.
    """

    def __init__(self, vocabulary):
        long = [token for token in vocabulary.tokens[len(SPECIAL_TOKENS) :] if len(token) != 1]
        if long:
            raise ValueError(f"CharacterTokenizer: got the token {long[0]!r}, expected single characters")
        self.vocabulary = vocabulary

    def __repr__(self):
        return f"CharacterTokenizer({self.vocabulary!r})"

    def __len__(self):
        return len(self.vocabulary)

    @classmethod
    def from_text(cls, text):
        """Number the characters of a text, in code-point order. Raises ValueError for "", which has none."""
        if not text:
            raise ValueError("CharacterTokenizer.from_text: the text is empty, so there are no characters to number")
        return cls(Vocabulary([*SPECIAL_TOKENS, *sorted(set(text))]))

    @classmethod
    def from_file(cls, path):
        """Number the characters of a UTF-8 file, whatever the system's own encoding is."""
        return cls.from_text(read_text(path))

    def encode(self, text):
        """Return the ids of a text, `unk` for characters that are not in the vocabulary; "" gives []."""
        return self.vocabulary.encode(text)

    def unknown_tokens(self, text):
        """Return the characters of a text that the vocabulary lacks, each once, in order."""
        return list(dict.fromkeys(character for character in text if character not in self.vocabulary))

    def decode(self, ids):
        """Return the text of a list or array of ids, up to the first end token; padding and begin are left out.

        Unknown characters show as "<unk>". Raises IndexError for an id outside the vocabulary; [] gives "".
        """
        pad, bos, eos, _ = SPECIAL_TOKENS
        text = []
        for token in self.vocabulary.decode(ids):
            if token == eos:
                break
            if token not in (pad, bos):
                text.append(token)
        return "".join(text)

    def save(self, path):
        """Write the vocabulary as JSON in UTF-8."""
        self.vocabulary.save(path)

    @classmethod
    def load(cls, path):
        """Read what `save` wrote. Raises ValueError that names the path where the file is damaged."""
        return cls(Vocabulary.load(path))


def read_text(path):
    """Return the content of a UTF-8 file with its line ends as they are; ValueError where it is no UTF-8."""
    with open(path, encoding="utf-8", newline="") as file:
        try:
            return file.read()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is no UTF-8 text: {error}") from error
