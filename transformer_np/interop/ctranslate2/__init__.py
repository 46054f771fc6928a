"""CTranslate2's models, its binary file of weights and its vocabularies, as a Transformer, and back.

CTranslate2 itself is not needed.
"""

from .load import load, load_vocabularies, read_variables
from .save import save

__all__ = ["load", "load_vocabularies", "read_variables", "save"]
