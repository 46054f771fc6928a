"""Hugging Face's folders, config.json beside model.safetensors, as models of ours, and ours as such folders.

Neither PyTorch nor transformers is needed, and no pickle is ever opened. A file for each family says which tensor is
which parameter of ours; the map is used in both directions.
"""

from .convert import load, save

__all__ = ["load", "save"]
