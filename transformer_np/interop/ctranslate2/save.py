"""A Transformer of ours as files that CTranslate2 translates with; `load` says what is in them."""

import json
import struct
from pathlib import Path

import numpy as np

from ...backend import to_numpy
from ...files import write_atomically
from ...layers import SinusoidalPositions
from ...models import Transformer
from .layout import ACTIVATIONS, TYPES, layout


def save(model, path, source_tokens, target_tokens):
    """Write a Transformer as a folder that CTranslate2 translates with; the tokens are lists in the order of their ids.

    Tokens 1 and 2 of the target begin and end a text. Positions that are not CTranslate2's own are written as a table
    of `max_len` rows. The weights are written in float32, whatever the model's type is.
    Raises TypeError for another model, and ValueError for tokens and options that do not fit.
    """
    if not isinstance(model, Transformer):
        raise TypeError(f"ctranslate2.save: got {type(model).__name__}, expected Transformer")
    config, tokens = model.config, {"source": list(source_tokens), "target": list(target_tokens)}
    for side, size in (("source", config["src_vocab_size"]), ("target", config["tgt_vocab_size"])):
        if len(tokens[side]) != size or "<unk>" not in tokens[side]:
            raise ValueError(
                f"ctranslate2.save: {side}_tokens must be {size} tokens, <unk> one of them, got {len(tokens[side])}"
            )
    bos, eos = tokens["target"][1:3]
    about = {"bos_token": bos, "eos_token": eos, "unk_token": "<unk>", "decoder_start_token": bos}
    about |= {"add_source_bos": False, "add_source_eos": False, "layer_norm_epsilon": config["eps"]}
    variables, aliases = _variables(model)
    content = [struct.pack("<I", 6), _packed("TransformerSpec"), struct.pack("<II", 7, len(variables))]
    for name, array in sorted(variables.items()):
        header = struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
        content += [_packed(name), header, struct.pack("<BI", TYPES.index(array.dtype.name), array.nbytes)]
        content.append(array.tobytes())
    content += [struct.pack("<I", len(aliases)), *(_packed(alias) + _packed(name) for alias, name in aliases.items())]
    path = Path(path)
    write_atomically(path / "model.bin", b"".join(content))
    write_atomically(path / "config.json", json.dumps(about, indent=2).encode())
    for side in tokens:
        write_atomically(path / f"{side}_vocabulary.json", json.dumps(tokens[side], indent=0).encode())


def _packed(text):
    """Return a name as the file has it."""
    return struct.pack("<H", len(text.encode()) + 1) + text.encode() + b"\0"


def _variables(model):
    """Return {name: array} of all that the file holds, and {alias: name}."""
    config = {**model.config, "final_norm": model.encoder.final_norm is not None}
    if not config["bias"]:
        raise ValueError("ctranslate2.save: CTranslate2 has no bias=False")
    state = {name: to_numpy(p.data).astype("<f4") for name, p in model.named_parameters()}
    variables, aliases = {}, {}
    for theirs, (ours, _, linear) in layout(config).items():
        if ours[0] in state and "position" not in theirs:
            parts = [state[name].T if linear else state[name] for name in ours]
            variables[theirs] = np.concatenate(parts)
    tables = {"encoder/embeddings_0/weight": model.src_embedding, "decoder/embeddings/weight": model.tgt_embedding}
    variables["encoder/embeddings_0/weight"] = variables.pop("encoder/embeddings/weight")
    tables["decoder/projection/weight"] = model.output
    for name, layer in tables.items():
        twin = next(other for other, first in tables.items() if first.weight is layer.weight)
        if twin != name:
            aliases[name] = twin
    activation = next(code for code, name in ACTIVATIONS.items() if name == config["activation"])
    flags = {"num_heads": np.int16(config["n_heads"]), "pre_norm": np.int8(config["norm"] == "pre")}
    flags |= {"activation": np.int8(activation), "scale_embeddings": np.int8(1)}
    for side, positions in (("encoder", model.src_positions), ("decoder", model.tgt_positions)):
        variables |= {f"{side}/{name}": np.array(value) for name, value in flags.items()}
        if not isinstance(positions, SinusoidalPositions) or (positions.layout, positions.first) != ("halves", 1):
            variables[f"{side}/position_encodings/encodings"] = _position_table(positions)
    return variables, aliases


def _position_table(positions):
    """Return the rows that are added to the embeddings, (max_len, D)."""
    if positions.max_len is None:
        raise ValueError("ctranslate2.save: these positions are written as a table, which needs a max_len, got None")
    is_computed = isinstance(positions, SinusoidalPositions)
    return (positions.table(positions.max_len) if is_computed else to_numpy(positions.weight.data)).astype("<f4")
