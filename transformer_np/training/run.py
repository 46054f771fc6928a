"""Run folders: what a training leaves behind, enough to use the model later and to see how it went.

weights.safetensors    the model
config.json            what was asked for: task, model, training
source_vocabulary.json, target_vocabulary.json; vocabulary.json where the model has but one; none for images
history.json           loss and learning rate of every step, and the results
training.safetensors   all that the training needs to go on; written first and read alone, so that its parts agree
loss.png, attention.png
"""

import json
import pathlib
import shlex

from ..data import CharacterTokenizer, Tokenizer, Vocabulary
from ..files import write_atomically
from ..models import load
from .checkpoint import read_checkpoint

WEIGHTS, CONFIG, HISTORY = "weights.safetensors", "config.json", "history.json"
TRAINING = "training.safetensors"
VOCABULARIES = ("source_vocabulary.json", "target_vocabulary.json")
VOCABULARY = "vocabulary.json"
TRANSLATORS, WRITERS = ("dates", "reverse"), ("text",)  # the tasks whose models translate, and those that write on


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


def last_run(root, tasks=None):
    """Return the finished run in `root` that was saved last; with `tasks`, of those of one of these tasks.

    A run whose config.json is missing or damaged counts: to load it says what is wrong. Raises FileNotFoundError where
    there is none.
    """
    runs = [path.parent for path in pathlib.Path(root).glob(f"*/{WEIGHTS}")]
    known = [run for run in runs if tasks is None or _task_of(run) in (*tasks, None)]
    if not known:
        option = "" if tasks is None or tasks[0] == "dates" else f" --task {tasks[0]}"
        others = f" of the task {' or '.join(tasks)}" if runs else ""
        raise FileNotFoundError(f"no finished run{others} in {root}/: train one first (transformer-np train{option})")
    return max(known, key=lambda run: (run / WEIGHTS).stat().st_mtime_ns)


def _task_of(folder):
    """Return the name of a run's task, or None where its config.json does not say it; the first runs were of dates."""
    try:
        return read_json(folder / CONFIG).get("task", "dates")
    except (OSError, ValueError):
        return None


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
    """Write the model, its vocabularies (two, one or none) and the JSON files.

    The weights come last: they mark the run as finished.
    """
    names = {0: (), 1: (VOCABULARY,), 2: VOCABULARIES}[len(vocabularies)]
    for name, vocabulary in zip(names, vocabularies, strict=True):
        vocabulary.save(folder / name)
    write_json(folder / CONFIG, config)
    write_json(folder / HISTORY, history)
    model.save(folder / WEIGHTS)


def load_run(folder):
    """Return (model, source tokenizer, target tokenizer, config) of a run folder whose model translates.

    Raises FileNotFoundError that lists what is missing, ValueError for a run of another task, a damaged file, or parts
    that do not fit together.
    """
    model, vocabularies, config = _load(folder, TRANSLATORS, VOCABULARIES)
    _check_sizes(folder, (model.config["src_vocab_size"], model.config["tgt_vocab_size"]), vocabularies)
    kind = CharacterTokenizer if config.get("task") == "reverse" else Tokenizer
    return model, *map(kind, vocabularies), config


def load_text_run(folder):
    """Return (model, tokenizer, config) of a run folder whose model writes text. Raises as `load_run` does."""
    model, vocabularies, config = _load(folder, WRITERS, (VOCABULARY,))
    _check_sizes(folder, (model.config["vocab_size"],), vocabularies)
    return model, CharacterTokenizer(*vocabularies), config


def load_training(folder):
    """Return (state, history, about) of a run folder, as `read_checkpoint` does, to go on with its training.

    Raises FileNotFoundError where there is no such folder or nothing to go on from, ValueError for a damaged file.
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"no run folder at {folder}")
    if not (folder / TRAINING).is_file():
        raise FileNotFoundError(
            f"the training of {folder} cannot go on: there is no {TRAINING}, which runs of older versions lack; "
            "its model can be used all the same"
        )
    return read_checkpoint(folder / TRAINING)


def _load(folder, tasks, vocabulary_names):
    """Return the model, the vocabularies and the config of a run of one of these tasks."""
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"no run folder at {folder}")
    task = _task_of(folder)
    if task not in (*tasks, None):
        expected = " or ".join(tasks)
        raise ValueError(f"{folder} is a run of the task {task}, expected {expected}: {_advice(task, folder)}")
    missing = [name for name in (WEIGHTS, CONFIG, *vocabulary_names) if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(f"the run folder {folder} is not complete: it lacks {', '.join(missing)}")
    vocabularies = [Vocabulary.load(folder / name) for name in vocabulary_names]
    return load(folder / WEIGHTS), vocabularies, read_json(folder / CONFIG)


def _advice(task, folder):
    """Say what a run of this task can be used with."""
    for command, tasks in (("translate", TRANSLATORS), ("generate", WRITERS)):
        if task in tasks:
            return f"use transformer-np {command} --run {shlex.quote(str(folder))}"
    return f'in Python, transformer_np.load("{folder / WEIGHTS}") gives its model'


def _check_sizes(folder, sizes, vocabularies):
    found = tuple(map(len, vocabularies))
    if sizes != found:
        raise ValueError(
            f"the parts of {folder} do not belong together: the model has vocabularies of {sizes} tokens, "
            f"the files {found}"
        )
