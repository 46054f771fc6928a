"""The thirty-five wrong backwards of benchmarks/checkers.py: none but the equivalent one escapes."""

import numpy as np
import pytest
from wrong_backwards import CASES

from transformer_np.checking import gradcheck


def status(case, backward, seed, **options):
    rng = np.random.default_rng((seed, len(case.name)))
    inputs = case.draw(rng)
    return gradcheck((case.forward, backward), *inputs, seed=seed, explain=False, **options).status


def escapes(seeds, **options):
    """The wrong backwards that pass, and the right ones that do not."""
    passed = {
        f"{case.name}: {name}"
        for case in CASES
        for name, wrong in case.wrong.items()
        for seed in seeds
        if status(case, wrong, seed, **options) != "FAIL"
    }
    alarms = {case.name for case in CASES for seed in seeds if status(case, case.backward, seed, **options) == "FAIL"}
    return passed, alarms


def test_there_are_thirty_five():
    assert sum(len(case.wrong) for case in CASES) == 35


def test_none_escapes_and_no_right_one_fails():
    assert escapes(range(3)) == (set(), set())


def test_at_gamma_one_only_the_equivalent_one_escapes():
    """Without the redrawing of gamma = 1 the missing gamma cannot be seen, and the outcome is VACUOUS, not PASS."""
    passed, alarms = escapes(range(1), randomize=False, points=1)
    assert passed == {"LayerNorm: forgets gamma"}
    assert alarms == set()
    case = next(c for c in CASES if c.name == "LayerNorm")
    assert status(case, case.wrong["forgets gamma"], 0, randomize=False, points=1) == "VACUOUS"


@pytest.mark.slow
def test_none_escapes_over_twenty_seeds():
    assert escapes(range(20)) == (set(), set())
