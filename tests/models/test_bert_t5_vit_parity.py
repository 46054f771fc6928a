"""BERT, T5 (both versions) and ViT against Hugging Face's in float64: outputs, loss, every gradient, ten AdamW steps.

Once with transformers itself, at another size and seed, and once with what it gave, from a file of a few kilobytes.
"""

from pathlib import Path

import numpy as np
import pytest
from huggingface_twins import CASES, LARGER, SMALL, STEPS, compare, facts_from_huggingface

TOLERANCES = {"output": 1e-10, "loss": 1e-10, "gradient": 1e-9, "after": 1e-8}
FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"


def assert_equal(errors):
    """Fail where an error is above its tolerance."""
    assert all(errors[kind] < tolerance for kind, tolerance in TOLERANCES.items()), errors


@pytest.mark.parametrize("name", CASES)
def test_beside_huggingface_from_a_file(name):
    with np.load(FIXTURES / f"huggingface_{name}.npz") as file:
        facts = dict(file)
    assert_equal(compare(CASES[name], SMALL, facts))


@pytest.mark.usefixtures("one_torch_thread")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_beside_huggingface(name):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    facts = facts_from_huggingface(CASES[name], LARGER, seed=1)
    assert len(facts["losses"]) == STEPS
    assert_equal(compare(CASES[name], LARGER, facts))


def test_a_wrong_model_is_noticed():
    with np.load(FIXTURES / "huggingface_bert.npz") as file:
        facts = dict(file)
    facts["before bert.pooler.dense.bias"][0] += 1e-6
    errors = compare(CASES["bert"], SMALL, facts)
    assert all(errors[kind] > tolerance for kind, tolerance in TOLERANCES.items()), errors
