"""Generation: from a trained model to text."""

from .beam import beam_search
from .cache import KeyValueCache, MemoryCache
from .greedy import greedy
from .sampling import sample

__all__ = ["KeyValueCache", "MemoryCache", "beam_search", "greedy", "sample"]
