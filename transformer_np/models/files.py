"""Models on disk: one safetensors file that holds the weights, and the configuration in its header."""

import json
import pathlib

import numpy as np

from ..files import write_atomically


def save(model, path):
    """Write `model` to `path`, all or nothing: a full disk or an interruption leaves an older file there as it was.

    The header keeps the class name and the arguments the model was made with, as JSON. Raises OSError where the file
    cannot be written.
    """
    from safetensors.numpy import save as to_bytes

    config = {**model.config, "dtype": model.dtype.name}  # astype may have changed it since
    about = json.dumps({"model": type(model).__name__, "config": config}, default=_plain, sort_keys=True)
    # One entry only: the library writes several in random order, and equal models should give equal files.
    write_atomically(path, to_bytes(model.state_dict(), metadata={"transformer_np": about}))


def _plain(value):
    """Turn a NumPy number into Python's, and a generator given as seed into null: JSON knows neither."""
    return value.item() if isinstance(value, np.generic) else None


def load(path, **changes):
    """Read back a model written by `model.save(path)`; `changes` override what it was made with, such as max_len=1024.

    Raises FileNotFoundError, or ValueError for a file that is damaged or was not written by this package.
    """
    from safetensors import SafetensorError, safe_open

    from . import MODELS

    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no model file at {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            about = json.loads((file.metadata() or {})["transformer_np"])
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        name, config = about["model"], dict(about["config"])
    except (SafetensorError, KeyError, TypeError, ValueError) as error:  # JSONDecodeError is a ValueError
        raise ValueError(f"{path} is damaged or was not written by transformer_np: {error!r}") from error
    if name not in MODELS:
        raise ValueError(f"{path} holds a {name!r}; this version knows {', '.join(MODELS)}")
    config.update(changes)
    if state:
        config.setdefault("dtype", next(iter(state.values())).dtype.name)
    return MODELS[name](**config).load_state_dict(state)
