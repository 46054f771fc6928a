"""A new layer is noticed: each layer has a case that its contract is tested with, and says where it is derived.

What else a new layer needs is in docs/contributing.md.
"""

import inspect
import re

import numpy as np
import pytest
from layer_cases import CASES as OF_THE_PAPER
from test_later_layers_contract import CASES as LATER

from transformer_np import layers

NAMES = [name for name in layers.__all__ if isinstance(getattr(layers, name), type)]
TESTED_APART = {"BlockwiseAttention": "test_blockwise_attention.py", "Checkpoint": "../test_checkpointing.py"}
# They hand on to others what they compute, or have no gradient of their own (ALiBi), or a line of rule 4.
WITHOUT_A_PAGE = {"ALiBi", "Checkpoint", "Decoder", "Encoder", "PatchEmbedding", "Pooler", "Sigmoid", "Tanh"}


def among_the_cases():
    """The names of the layers that stand among the cases."""
    built = [make(np.random.default_rng(0))[0] for make in OF_THE_PAPER.values()]
    return {type(layer).__name__ for layer in built} | {make.func.__name__ for make, _ in LATER.values()}


@pytest.mark.parametrize("name", NAMES)
def test_it_is_among_the_cases(name):
    assert name in among_the_cases() | set(TESTED_APART), (
        f"{name} has no case: add one to CASES in tests/layers/test_later_layers_contract.py, "
        "and its gradients to a test of its own in tests/layers"
    )


@pytest.mark.parametrize("name", sorted(set(NAMES) - WITHOUT_A_PAGE))
def test_it_says_where_it_is_derived(name):
    cls = getattr(layers, name)
    words = " ".join(f"{inspect.getdoc(cls)} {inspect.getdoc(inspect.getmodule(cls))}".split())
    assert re.search(r"docs/derivations/[\w-]+\.md", words), (
        f"{name}: its docstring names no page: write docs/derivations/NAME.md, link it from the README there, and say "
        "in the docstring where it is"
    )


def test_the_exceptions_are_layers():
    assert set(TESTED_APART) | WITHOUT_A_PAGE <= set(NAMES)
