"""A vocabulary: which id each token has, and back."""

import json
from collections import Counter
from operator import index
from pathlib import Path

from ..files import write_atomically

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIAL_TOKENS = ("<pad>", "<bos>", "<eos>", "<unk>")  # at the ids above


class Vocabulary:
    """Tokens numbered from 0. The first four are always padding, begin, end and unknown.

    Build it from the training split alone (`Vocabulary.from_texts`): a token the model never saw has no learned row in
    the embedding, and must be met as unknown in a test as it would be in use.

    Parameters: `tokens` are all tokens in the order of their ids, the four special ones first.
    Raises ValueError where the special ones are missing, or a token comes twice.
    """

    pad, bos, eos, unk = PAD, BOS, EOS, UNK

    def __init__(self, tokens):
        tokens = tuple(tokens)
        if tokens[: len(SPECIAL_TOKENS)] != SPECIAL_TOKENS:
            raise ValueError(
                f"Vocabulary: got {tokens[: len(SPECIAL_TOKENS)]} as the first tokens, expected {SPECIAL_TOKENS}"
            )
        strange = [token for token in tokens if not isinstance(token, str) or not token]
        if strange:
            raise ValueError(f"Vocabulary: got the token {strange[0]!r}, expected strings that are not empty")
        self.tokens = tokens
        self._ids = {token: i for i, token in enumerate(tokens)}
        if len(self._ids) < len(tokens):
            twice = next(token for token, times in Counter(tokens).items() if times > 1)
            raise ValueError(f"Vocabulary: the token {twice!r} comes more than once")

    @classmethod
    def from_texts(cls, tokenised_texts):
        """Number the tokens of many token lists, the most frequent first; equal counts go in code-point order."""
        counts = Counter(token for tokens in tokenised_texts for token in tokens)
        return cls([*SPECIAL_TOKENS, *sorted(counts, key=lambda token: (-counts[token], token))])

    def __len__(self):
        return len(self.tokens)

    def __contains__(self, token):
        return token in self._ids

    def __eq__(self, other):
        return isinstance(other, Vocabulary) and self.tokens == other.tokens

    __hash__ = None

    def __repr__(self):
        return f"Vocabulary({len(self)} tokens)"

    def encode(self, tokens):
        """Return the ids of a list of tokens; a token that is not in the vocabulary becomes `unk`."""
        ids, unk = self._ids, self.unk
        return [ids.get(token, unk) for token in tokens]

    def decode(self, ids):
        """Return the tokens of a list or array of ids, special ones included.

        Raises IndexError for an id outside 0..V-1 (a negative one too), TypeError for one that is not a whole number.
        """
        tokens = []
        for i in ids:
            i = index(i)
            if not 0 <= i < len(self.tokens):
                raise IndexError(f"Vocabulary.decode: got the id {i}, expected 0 to {len(self.tokens) - 1}")
            tokens.append(self.tokens[i])
        return tokens

    def save(self, path):
        """Write the vocabulary, all or nothing, as JSON in UTF-8, one token a line, readable in any editor."""
        text = json.dumps({"tokens": self.tokens}, ensure_ascii=False, indent=0)
        write_atomically(path, f"{text}\n".encode())

    @classmethod
    def load(cls, path):
        """Read what `save` wrote. Raises ValueError that names the path where the file is damaged."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            if not isinstance(content, dict) or not isinstance(content.get("tokens"), list):
                raise ValueError('expected a JSON object with the list "tokens"')
            return cls(content["tokens"])
        except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
            raise ValueError(f"{path}: not a usable vocabulary file ({error})") from error
