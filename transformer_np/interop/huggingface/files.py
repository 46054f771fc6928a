"""The tensors of a folder, in one safetensors file or several, and the JSON beside them."""

import json
from pathlib import Path

import numpy as np

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack")


def read_json(path):
    """Return the object in a JSON file. Raises FileNotFoundError, and ValueError where it holds none."""
    if not path.is_file():
        raise FileNotFoundError(f"no {path.name} in {path.parent}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise ValueError(f"{path} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object, got a {type(content).__name__}")
    return content


class Tensors:
    """The tensors of a folder: their names, shapes and types first, their numbers only when asked for.

    `shapes` is {name: shape}, `types` {name: safetensors' name of the type}. Raises FileNotFoundError where there are
    no weights, and ValueError where they are damaged, or are there only as a pickle, which could run code.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        self.shapes, self.types, self._files = {}, {}, {}
        for file, names in self._find().items():
            self._open(self.folder / file, names)

    def _find(self):
        """Return {file name: the names it should hold, or None}."""
        if (self.folder / WEIGHTS).is_file():
            return {WEIGHTS: None}
        if not (self.folder / INDEX).is_file():
            pickles = [name for name in PICKLES if (self.folder / name).exists()]
            if pickles:
                raise ValueError(
                    f"{self.folder} has its weights as {pickles[0]} only, which is not read: a pickle can run code; "
                    f"save the model as {WEIGHTS}"
                )
            raise FileNotFoundError(f"no {WEIGHTS} in {self.folder}")
        where = read_json(self.folder / INDEX).get("weight_map")
        if not isinstance(where, dict) or not where:
            raise ValueError(f"{self.folder / INDEX} has no weight_map")
        files = {}
        for name, file in where.items():
            if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
                raise ValueError(f"{self.folder / INDEX}: {file!r} is no safetensors file of this folder")
            files.setdefault(file, []).append(name)
        return files

    def _open(self, path, names):
        from safetensors import SafetensorError, safe_open

        if not path.is_file():
            raise FileNotFoundError(f"no {path.name} in {path.parent}, though the index names it")
        try:
            with safe_open(path, framework="numpy") as file:
                for name in file.keys() if names is None else names:
                    part = file.get_slice(name)
                    self.shapes[name], self.types[name] = tuple(part.get_shape()), part.get_dtype()
                    self._files[name] = path
        except SafetensorError as error:
            raise ValueError(f"{path} is damaged: {error}") from error

    def __contains__(self, name):
        return name in self.shapes

    def read(self, name, dtype=None):
        """Return a tensor as an array of `dtype`, or of its own type (bfloat16 as float32)."""
        from safetensors import safe_open

        if self.types[name] == "BF16":
            array = self._bfloat16(name)
        else:
            with safe_open(self._files[name], framework="numpy") as file:
                array = file.get_tensor(name)
        return array if dtype is None else array.astype(dtype)

    def _bfloat16(self, name):
        """Widen to float32: a bfloat16 is its first two bytes. (NumPy does not know the type.)"""
        with self._files[name].open("rb") as file:  # opened before: safetensors has checked header and offsets
            n_header = int.from_bytes(file.read(8), "little")
            start, end = json.loads(file.read(n_header))[name]["data_offsets"]
            file.seek(8 + n_header + start)
            halves = np.frombuffer(file.read(end - start), "<u2")
        return (halves.astype(np.uint32) << 16).view(np.float32).reshape(self.shapes[name])

    def dtype(self):
        """Return the type a model should have: float64 or float32, as the weights; half precision becomes float32."""
        return "float64" if "F64" in self.types.values() else "float32"


def write(folder, config, tensors, shard_bytes):
    """Write config.json and the tensors, in several files with an index where they pass `shard_bytes`."""
    from safetensors.numpy import save as to_bytes

    from ...files import write_atomically

    folder = Path(folder)
    shards, size = [{}], 0
    for name, array in tensors.items():
        if shards[-1] and size + array.nbytes > shard_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = array
        size += array.nbytes
    names = [WEIGHTS]
    if len(shards) > 1:
        names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        write_atomically(folder / name, to_bytes(shard, metadata={"format": "pt"}))  # transformers asks for this word
    if len(shards) > 1:
        index = {
            "metadata": {"total_size": sum(array.nbytes for array in tensors.values())},
            "weight_map": {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard},
        }
        write_atomically(folder / INDEX, json.dumps(index, indent=2).encode())
        (folder / WEIGHTS).unlink(missing_ok=True)  # of an earlier save: it would be read in place of the shards
    write_atomically(folder / CONFIG, (json.dumps(config, indent=2) + "\n").encode())
