"""Weights of other libraries, read and written: PyTorch, Hugging Face, CTranslate2 and llama2.c.

None of the libraries is needed, but for PyTorch by `interop.torch`. Files are taken as coming from strangers: sizes and
offsets are checked before anything is made, and nothing that is read can run code.
"""

from . import ctranslate2, huggingface, llama2c, torch

__all__ = ["ctranslate2", "huggingface", "llama2c", "torch"]
