"""PyTorch's layers from ours and back. PyTorch itself is imported by the functions that need it."""

from .convert import from_torch, to_torch

__all__ = ["from_torch", "to_torch"]
