"""A training on disk: one safetensors file with all that it takes to go on, so that no two parts can disagree."""

import json
import pathlib
from dataclasses import asdict

import numpy as np

from ..files import write_atomically
from .loop import History

CURVES = ("losses", "learning_rates")


def save_checkpoint(path, step, history=None, about=None):
    """Write the state of a `TrainStep` and a `History` to `path`, all or nothing; `about` is anything that JSON knows.

    An older file there stays as it was until the new one is whole. Raises OSError where it cannot be written.
    """
    from safetensors.numpy import save as to_bytes

    numbers = asdict(History() if history is None else history)
    arrays = {f"step.{name}": value for name, value in step.state_dict().items()}
    arrays |= {f"history.{name}": np.array(numbers.pop(name), np.float64) for name in CURVES}
    header = json.dumps({"checkpoint": {"history": numbers, "about": about}})
    write_atomically(path, to_bytes(arrays, metadata={"transformer_np": header}))


def read_checkpoint(path):
    """Return (state, history, about) of a checkpoint; `step.load_state_dict(state)` takes up the first.

    Raises FileNotFoundError, or ValueError for a file that is damaged or was not written by `save_checkpoint`.
    """
    from safetensors import SafetensorError, safe_open

    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint at {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {})["transformer_np"])["checkpoint"]
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        curves = {name: arrays.pop(f"history.{name}").tolist() for name in CURVES}
        history, about = History(**curves, **header["history"]), header["about"]
    except (SafetensorError, KeyError, TypeError, ValueError) as error:  # JSONDecodeError is a ValueError
        raise ValueError(f"{path} is damaged or is no checkpoint of transformer_np: {error!r}") from error
    return {name.removeprefix("step."): value for name, value in arrays.items()}, history, about
