"""Models that write, from wherever they come: a run folder, Hugging Face, llama2.c, CTranslate2."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data import SubwordTokenizer
from ..data.vocabulary import SPECIAL_TOKENS
from ..interop import ctranslate2, huggingface, llama2c
from ..interop.huggingface.files import read_json


@dataclass
class Writer:
    """A model with what it takes to use it: text to ids and back, and where texts begin and end.

    `start` are the ids that an empty prompt stands for; `settings`, the special ids, go to `sample` and `beam_search`;
    `unknown` names what the vocabulary lacks of a text.
    """

    model: Any
    encode: Callable
    decode: Callable
    start: list
    settings: dict
    unknown: Callable = lambda text: []

    @property
    def translates(self):
        """Whether the model reads the prompt with an encoder and answers, instead of writing on."""
        return hasattr(self.model, "encode")


def from_run(folder):
    """Open a run folder of the task text. An empty prompt stands for the end of a line."""
    from ..training import load_text_run

    model, tokenizer, _ = load_text_run(folder)
    start = tokenizer.encode("\n") if "\n" in tokenizer.vocabulary else [len(SPECIAL_TOKENS)]
    settings = {"eos_id": None, "forbid": range(len(SPECIAL_TOKENS))}
    return Writer(model, tokenizer.encode, tokenizer.decode, start, settings, tokenizer.unknown_tokens)


def from_weights(path, tokenizer=None):
    """Open other weights: a Hugging Face folder, a folder of CTranslate2, or a file of llama2.c.

    `tokenizer` is the path of a tokenizer.json, or of llama2.c's tokenizer. Raises FileNotFoundError and ValueError
    that say what is missing or is none of these.
    """
    path = Path(path)
    if path.suffix in (".safetensors", ".json"):
        raise ValueError(f"{path}: of Hugging Face's files give the folder, {path.parent}")
    if path.is_file():
        return _llama2c(path, tokenizer)
    if not path.is_dir():
        raise FileNotFoundError(f"no file or folder at {path}")
    if (path / "model.bin").is_file():
        return _ctranslate2(path, tokenizer)
    if (path / "weights.safetensors").is_file():
        raise ValueError(f"{path} is a run folder: use --run {path}")
    return _huggingface(path, tokenizer)


def _huggingface(path, tokenizer):
    model = huggingface.load(path)
    if not hasattr(model, "decode"):
        raise ValueError(f"{path} holds a {type(model).__name__}, which reads but does not write")
    if tokenizer is None and not (path / "tokenizer.json").is_file():
        raise FileNotFoundError(f"no tokenizer.json in {path}: give one with --tokenizer")
    subwords = SubwordTokenizer.load(path if tokenizer is None else tokenizer)
    config = read_json(path / "config.json")
    settings = {"eos_id": _id(config, "eos_token_id")}
    if hasattr(model, "encode"):
        begin = _id(config, "decoder_start_token_id")
        settings["bos_id"] = model.pad_id if begin is None else begin
    start = _id(config, "bos_token_id")

    def encode(text):
        return subwords.encode(text, special=True) if text else []

    return Writer(model, encode, subwords.decode, [] if start is None else [start], settings)


def _id(config, name):
    """Return the id that a config.json gives; of several the first; None where it gives none."""
    found = config.get(name)
    found = found[0] if isinstance(found, list) and found else found
    return found if isinstance(found, int) else None


def _llama2c(path, tokenizer):
    if tokenizer is None:
        raise ValueError(f"{path}: llama2.c's files hold no tokenizer: give its .bin file with --tokenizer")
    model, pieces = llama2c.load(path), llama2c.Tokenizer.load(tokenizer)
    if len(pieces) != model.vocab_size:
        raise ValueError(f"{tokenizer} has {len(pieces)} tokens, the model {model.vocab_size}: they do not fit")
    # Like run.c, stop where the next text would begin.
    return Writer(model, pieces.encode, pieces.decode, [pieces.bos], {"eos_id": pieces.bos})


def _ctranslate2(path, tokenizer):
    """A vocabulary of single characters spells texts; of another one, tokens are what stands between spaces."""
    if tokenizer is not None:
        raise ValueError(f"{path} has vocabularies of its own; --tokenizer is for Hugging Face and llama2.c")
    model, (source, target) = ctranslate2.load(path), ctranslate2.load_vocabularies(path)
    special = {"<blank>", "<s>", "</s>", "<unk>", "<pad>"}
    spells = all(len(token) == 1 for token in source if token not in special)
    ids, unknown = {token: i for i, token in enumerate(source)}, source.index("<unk>")

    def tokens(text):
        return list(text) if spells else text.split()

    def decode(written):
        return ("" if spells else " ").join(target[i] for i in written if target[i] not in special)

    return Writer(
        model,
        lambda text: [ids.get(token, unknown) for token in tokens(text)],
        decode,
        [],
        {"bos_id": 1, "eos_id": 2},
        lambda text: list(dict.fromkeys(token for token in tokens(text) if token not in ids)),
    )
