"""Generation: from a trained model to text."""

from .beam import beam_search
from .cache import KeyValueCache, MemoryCache, SpillingCache, StateCache
from .greedy import greedy
from .sampling import sample

__all__ = ["KeyValueCache", "MemoryCache", "SpillingCache", "StateCache", "beam_search", "greedy", "sample"]
