"""Run folders: what a training leaves behind, enough to translate with it later and to see how it went.

weights.safetensors    the model
config.json            what was asked for: task, model, training
source_vocabulary.json, target_vocabulary.json
history.json           loss and learning rate of every step, and the results
loss.png, attention.png
"""

import json
import pathlib

from ..data import Tokenizer, Vocabulary
from ..models import load
from ..models.files import write_atomically

WEIGHTS, CONFIG, HISTORY = "weights.safetensors", "config.json", "history.json"
VOCABULARIES = ("source_vocabulary.json", "target_vocabulary.json")


def new_run(root, name):
    """Make the folder root/name, or root/name-2, root/name-3 ... where it is taken: no run overwrites another.

    Raises ValueError for a name that is no plain folder name, OSError where the folder cannot be made.
    """
    if name in ("", ".", "..") or "/" in name or "\\" in name:
        raise ValueError(f"a run's name must be a plain folder name, got {name!r}")
    root = pathlib.Path(root)
    for number in range(1, 10_000):
        folder = root / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if not folder.exists():  # then a file stands where a folder above it should be
                raise
            continue
        return folder
    raise FileExistsError(f"{root} already holds {number} runs named {name}: choose another name")


def last_run(root):
    """Return the finished run in `root` that was saved last. Raises FileNotFoundError where there is none."""
    runs = list(pathlib.Path(root).glob(f"*/{WEIGHTS}"))
    if not runs:
        raise FileNotFoundError(f"no finished run in {root}/: train one first (transformer-np train)")
    return max(runs, key=lambda path: path.stat().st_mtime_ns).parent


def write_json(path, content):
    """Write `content` as readable JSON in UTF-8, all or nothing."""
    write_atomically(path, (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode("utf-8"))


def read_json(path):
    """Read a JSON object. Raises ValueError that names the path where it is damaged."""
    try:
        content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("expected a JSON object")
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise ValueError(f"{path} is damaged ({error})") from error
    return content


def save_run(folder, model, vocabularies, config, history):
    """Write the model, both vocabularies and the JSON files. The weights come last: they mark the run as finished."""
    for name, vocabulary in zip(VOCABULARIES, vocabularies, strict=True):
        vocabulary.save(folder / name)
    write_json(folder / CONFIG, config)
    write_json(folder / HISTORY, history)
    model.save(folder / WEIGHTS)


def load_run(folder):
    """Return (model, source tokenizer, target tokenizer, config) of a run folder.

    Raises FileNotFoundError that lists what is missing, ValueError for a damaged file or parts that do not fit
    together.
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"no run folder at {folder}")
    missing = [name for name in (WEIGHTS, CONFIG, *VOCABULARIES) if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(f"the run folder {folder} is not complete: it lacks {', '.join(missing)}")
    source, target = (Vocabulary.load(folder / name) for name in VOCABULARIES)
    model, config = load(folder / WEIGHTS), read_json(folder / CONFIG)
    sizes = (model.config["src_vocab_size"], model.config["tgt_vocab_size"])
    if sizes != (len(source), len(target)):
        raise ValueError(
            f"the parts of {folder} do not belong together: the model has vocabularies of {sizes} tokens, "
            f"the files {(len(source), len(target))}"
        )
    return model, Tokenizer(source), Tokenizer(target), config
