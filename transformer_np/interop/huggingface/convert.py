"""From a folder to a model, and back: the same for every family, by the family's own map of names."""

import re
from pathlib import Path

import numpy as np

from ...backend import to_numpy
from . import bert, gpt2, llama, t5, vit
from .entries import Config
from .files import CONFIG, Tensors, read_json, write

FAMILIES = (gpt2, llama, bert, t5, vit)
FLOATS = ("F64", "F32", "F16", "BF16")


def load(path, dtype=None):
    """Return the model of a Hugging Face folder: GPT, Llama, BERT, T5 or ViT, by the model_type in its config.json.

    `dtype`: float32 or float64, by default as the file has it; half precision becomes float32. The model comes in
    eval mode; its dropout is the one that theirs has on residual paths, also where theirs has others besides. Without
    a mask, padding is left out, where theirs looks at it unless told otherwise. A BertModel comes as a BERT with
    heads=None, without its pooler.
    Raises FileNotFoundError; and ValueError, before anything is made, for families and options that ours has not, for
    missing and unexpected tensors, wrong shapes and damaged files. Nothing that is read can run code.
    """
    path = Path(path)
    content = read_json(path / CONFIG)
    kinds = {kind: family for family in FAMILIES for kind in family.TYPES}
    kind = content.get("model_type")
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"{path}: model_type {kind!r:.60} is not known; there are {', '.join(kinds)}")
    family, tensors = kinds[kind], Tensors(path)
    content = {**family.DEFAULTS.get(kind, {}), **content}
    content |= {name: content[alias] for alias, name in family.ALIASES.items() if alias in content}
    names = full_names(family, tensors)
    try:
        config = family.read_config(Config(content), names)
        if max(value for key, value in config.items() if key.endswith("layers")) > len(names):
            raise ValueError(f"config.json speaks of more layers than there are tensors, {len(names)}")
        entries = family.layout(config)
        check(family, config, entries, names, tensors)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    dtype = tensors.dtype() if dtype is None else dtype
    model = family.MODEL(**config, dtype=dtype)
    ours = dict(model.named_parameters())
    for theirs, entry in entries.items():
        parameters = [ours[name] for name in entry.ours]
        arrays = entry.to_ours(tensors.read(names[theirs], dtype), [p.shape for p in parameters])
        for parameter, array in zip(parameters, arrays, strict=True):
            parameter.data[...] = array
    return model.eval()


def save(model, path, shard_bytes=5_000_000_000):
    """Write a model as a Hugging Face folder, which `from_pretrained` of transformers reads, with equal outputs.

    Above `shard_bytes` the weights are split over several files with an index.
    Raises TypeError for a model without a counterpart, and ValueError for options that theirs has not.
    """
    family = next((family for family in FAMILIES if type(model) is family.MODEL), None)
    if family is None:
        known = ", ".join(family.MODEL.__name__ for family in FAMILIES)
        raise TypeError(f"huggingface.save: got {type(model).__name__}, expected {known}")
    if model.dtype.name not in ("float16", "float32", "float64"):
        raise ValueError(f"huggingface.save: dtype must be float16, float32 or float64, got {model.dtype.name}")
    config = family.arguments(model)
    content = {**family.write_config(config), "torch_dtype": model.dtype.name}
    state = {name: to_numpy(p.data) for name, p in model.named_parameters()}
    tensors = {
        theirs: entry.to_theirs([state[name] for name in entry.ours]) for theirs, entry in family.layout(config).items()
    }
    if content["architectures"] == ["BertModel"]:
        tensors = {name.removeprefix(family.PREFIX): array for name, array in tensors.items()}
    write(path, content, tensors, shard_bytes)


def full_names(family, tensors):
    """Return {full name: name in the file}: a model without its head is saved without the "bert." or the like.

    Norms of the first releases have "gamma" and "beta" for "weight" and "bias".
    """
    is_bare = not any(name.startswith(family.PREFIX) for name in tensors.shapes)
    names = {}
    for name in tensors.shapes:
        full = re.sub("LayerNorm.gamma$", "LayerNorm.weight", re.sub("LayerNorm.beta$", "LayerNorm.bias", name))
        names[f"{family.PREFIX}{full}" if is_bare else full] = name
    return names


def check(family, config, entries, names, tensors):
    """Raise ValueError that lists what is missing, unexpected, of a wrong shape or type, or not as it is tied."""
    duplicates = {name: twin for name, twin in family.duplicates(config).items() if name in names}
    surplus = names.keys() - entries.keys() - duplicates.keys()
    surplus = sorted(name for name in surplus if not any(re.fullmatch(rule, name) for rule in family.IGNORED))
    wrong = []
    for name in entries.keys() & names.keys():
        shape, kind = tensors.shapes[names[name]], tensors.types[names[name]]
        if shape != entries[name].shape or kind not in FLOATS:
            wrong.append(f"{name} must be a float tensor of shape {entries[name].shape}, got {kind} of shape {shape}")
    missing = sorted(entries.keys() - names.keys())
    problems = [f"{what} {listed(found)}" for what, found in (("missing", missing), ("unexpected", surplus)) if found]
    problems += sorted(wrong)[:3]
    if problems:
        raise ValueError("; ".join(problems))
    for name, twin in duplicates.items():
        if twin is not None and not np.array_equal(tensors.read(names[name]), tensors.read(names[twin])):
            raise ValueError(f"{name} should be tied to {twin}, but differs")


def listed(names):
    """Join some names; of many, the first few."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
