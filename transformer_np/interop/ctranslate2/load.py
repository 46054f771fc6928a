"""A Transformer from CTranslate2's files.

The file, little-endian, versions 2 to 6: version (u32), name of the architecture, its revision (u32), the number of
variables (u32); then for each its name, number of axes (u8), sizes (u32 each), and up to version 3 the bytes of an item
(u8) and number of items (u32), from version 4 on a type (u8) and number of bytes (u32), and the data. From version 3 on
there follows the number of aliases (u32), each a name and the name that it stands for. A name is its length (u16)
and the bytes, the last of which is zero.
Source: CTranslate2's python/ctranslate2/specs/model_spec.py and src/models/model.cc.
"""

import json
import math
import re
from pathlib import Path

import numpy as np

from ...models import Transformer
from ..binary import BinaryReader
from .layout import ACTIVATIONS, HEADS, TABLES, TYPE_OF_SIZE, TYPES, layout

# What newer files say beside the weights: the values that our Transformer computes alike, None where any is.
FLAGS = {
    "activation": ACTIVATIONS,
    "alibi": (0,),
    "alibi_use_positive_positions": None,
    "alignment_heads": None,
    "alignment_layer": None,
    "embeddings_merge": None,
    "multi_query_attention": (0,),
    "num_heads": None,
    "pre_norm": (0, 1),
    "scale_alibi": None,
    "scale_embeddings": (1,),
    "start_from_zero_embedding": (0,),
}


def load(path, max_len=512, dtype="float32"):
    """Return the Transformer of the folder `path`: the weights of its model.bin.

    Sources have no begin or end token; targets start with <s>, id 1, and end with </s>, id 2. `max_len` is a limit of
    ours: the sines go on for ever. Where the file has a table of positions instead, they come as learned ones.
    Raises FileNotFoundError, and ValueError, before anything is made, for a damaged file, quantised weights, and what
    our Transformer does not have, such as relative positions.
    """
    path = Path(path)
    name, variables = read_variables(path / "model.bin")
    weights = {key: value for key, value in variables.items() if value.ndim}
    flags = {key: value.item() for key, value in variables.items() if not value.ndim}
    try:
        config = _config(name, flags, weights)
        config["eps"] = _eps(path / "config.json")
        state = _state(config, weights, dtype)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    config.setdefault("max_len", max_len)
    return Transformer(**config, dropout=0.0, dtype=dtype).load_state_dict(state).eval()


def load_vocabularies(path):
    """Return the tokens of source and target, two lists in the order of their ids, from the folder `path`.

    They stand in source_vocabulary and target_vocabulary, or both in shared_vocabulary, .txt (a token a line) or .json.
    An unknown token, <unk>, comes last where the file has none: CTranslate2 keeps a row for it there.
    """
    found = []
    for side in ("source", "target"):
        files = [Path(path) / f"{name}_vocabulary{end}" for name in (side, "shared") for end in (".json", ".txt")]
        file = next((file for file in files if file.is_file()), None)
        if file is None:
            raise FileNotFoundError(f"no {side}_vocabulary and no shared_vocabulary in {path}")
        tokens = _read_json(file) if file.suffix == ".json" else file.read_text(encoding="utf-8").split("\n")
        if file.suffix == ".txt" and tokens[-1] == "":  # after the last line's end
            tokens.pop()
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise ValueError(f"{file}: expected a list of tokens")
        found.append(tokens if "<unk>" in tokens else [*tokens, "<unk>"])
    return tuple(found)


def read_variables(path):
    """Return the architecture's name and {name: array} of a model.bin; an alias is the very array it stands for."""
    file = BinaryReader(path)
    version = file.number("I", "version")
    if not 2 <= version <= 6:
        raise file.error(f"version {version} is none of 2 to 6, the binary formats of CTranslate2")
    name = _name(file)
    file.number("I", "revision")
    variables = {}
    for _ in range(file.number("I", "number of variables")):
        key, array = _variable(file, version)
        if key in variables:
            raise file.error(f"{key} comes twice")
        variables[key] = array
    if version >= 3:
        for _ in range(file.number("I", "number of aliases")):
            alias, key = _name(file), _name(file)
            if alias in variables or key not in variables:
                raise file.error(f"alias {alias} for {key}: one is there already, or the other is not")
            variables[alias] = variables[key]
    file.finish()
    return name, variables


def _name(file):
    """Take a name: its length, and as many bytes."""
    text = file.text(file.number("H", "length of a name"), "a name")
    if not text.endswith("\0"):
        raise file.error(f"the name {text!r:.60} does not end in a zero byte")
    return text[:-1]


def _variable(file, version):
    """Take a name and an array."""
    name = _name(file)
    shape = tuple(file.number("I", f"shape of {name}") for _ in range(file.number("B", f"axes of {name}")))
    code, size = file.number("B", f"type of {name}"), file.number("I", f"size of {name}")
    types = TYPE_OF_SIZE if version < 4 else dict(enumerate(TYPES))
    if code not in types:
        raise file.error(f"{name} has the unknown type {code}; known are {', '.join(types.values())}")
    n_items = size if version < 4 else size // np.dtype(types[code]).itemsize
    if n_items != math.prod(shape):
        raise file.error(f"{name} has shape {shape}, but {size} {'items' if version < 4 else 'bytes'}")
    return name, file.array(types[code], shape, name)


def _config(name, flags, weights):
    """Read off the arguments of our Transformer."""
    for flag, value in flags.items():
        allowed = FLAGS.get(flag.split("/")[-1], ())
        if allowed is not None and value not in allowed:
            raise ValueError(f"{flag} = {value} has no counterpart in our Transformer")
    if "encoder/embeddings_0/weight" in weights:
        weights["encoder/embeddings/weight"] = weights.pop("encoder/embeddings_0/weight")
    tables = [_table(weights, f"{part}/weight") for part in TABLES]
    source, target, output = tables
    tied = target is output and (source is target or "target")
    return {
        "src_vocab_size": len(source),
        "tgt_vocab_size": len(target),
        "d_model": target.shape[1],
        "d_ff": len(_table(weights, "decoder/layer_0/ffn/linear_0/weight")),
        "n_encoder_layers": _n_layers(weights, "encoder"),
        "n_decoder_layers": _n_layers(weights, "decoder"),
        "n_heads": _same(flags, "num_heads", HEADS.get(name)),
        "norm": "pre" if _same(flags, "pre_norm", 1) else "post",
        "final_norm": "decoder/layer_norm/gamma" in weights,
        "activation": ACTIVATIONS[_same(flags, "activation", 0)],
        "tie_embeddings": tied,
        **_positions(weights),
    }


def _positions(weights):
    """Return the arguments for positions: sines in halves, or, where there is a table of rows, learned ones."""
    rows = [weights.get(f"{side}/position_encodings/encodings") for side in ("encoder", "decoder")]
    if all(table is None for table in rows):
        return {"positions": "sinusoidal", "position_layout": "halves", "first_position": 1}
    if any(table is None or table.shape != rows[0].shape for table in rows):
        raise ValueError("encoder and decoder must both have position_encodings, of one shape")
    return {"positions": "learned", "max_len": len(rows[0])}


def _table(weights, name):
    """Return a weight that must be there and have two axes."""
    if name not in weights or weights[name].ndim != 2:
        raise ValueError(f"{name} is missing, or no matrix")
    return weights[name]


def _n_layers(weights, side):
    found = {int(match[1]) for name in weights if (match := re.match(rf"{side}/layer_(\d{{1,4}})/", name))}
    return max(found, default=-1) + 1


def _same(flags, name, default):
    """Return the value that encoder and decoder share."""
    found = {flags.get(f"{side}/{name}", default) for side in ("encoder", "decoder")}
    if len(found) > 1 or None in found:
        raise ValueError(f"{name} must be there, and the same for encoder and decoder")
    return found.pop()


def _state(config, weights, dtype):
    """Return our state_dict; each array must have the shape that follows from `config`, and none may be left."""
    state = {}
    for theirs, (ours, shape, linear) in layout(config).items():
        array = weights.pop(theirs, None)
        if array is None or array.shape != shape:
            raise ValueError(f"{theirs} must have shape {shape}, got {'nothing' if array is None else array.shape}")
        if array.dtype.kind != "f":
            raise ValueError(f"{theirs} is {array.dtype.name}: convert the model without quantization")
        for name, part in zip(ours, np.split(array, len(ours)), strict=True):
            state[name] = (part.T if linear else part).astype(dtype)
    if weights:
        raise ValueError(f"our Transformer has no place for {', '.join(sorted(weights))}")
    tied = {False: (), "target": ("output",), True: ("tgt_embedding", "output")}[config["tie_embeddings"]]
    return {name: array for name, array in state.items() if name not in [f"{part}.weight" for part in tied]}


def _eps(path):
    """Return the eps of the norms: what the config says, or 1e-5 where it says null or there is none."""
    config = _read_json(path) if path.is_file() else {}
    eps = config.get("layer_norm_epsilon") if isinstance(config, dict) else config
    if eps is None:
        return 1e-5
    if not isinstance(eps, float) or not eps > 0:
        raise ValueError(f"{path.name}: layer_norm_epsilon must be a positive number, got {eps!r:.60}")
    return eps


def _read_json(path):
    """Return the content of a JSON file; ValueError for one that is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise ValueError(f"{path} is no JSON: {error}") from error
