"""Writing on for longer than the model can look back."""

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.training import write_on


@pytest.fixture
def model():
    return tnp.GPT(11, d_model=16, n_heads=2, n_layers=1, max_len=6, dropout=0.0, dtype="float64", seed=3)


def most_likely(model, ids, n, eos_id=None):
    """Token after token, all computed anew; a text longer than the model sees is cut to its last half."""
    ids, start, limit = list(ids), len(ids), model.config["max_len"]
    seen = len(ids)
    while len(ids) - start < n:
        if seen > limit:
            seen = limit // 2
        token = int(model.eval()(np.array([ids[-seen:]]))[0, -1].argmax())
        if token == eos_id:
            break
        ids.append(token)
        seen += 1
    return ids[start:]


@pytest.mark.parametrize("n_prompt", [1, 5, 6, 7, 20])
@pytest.mark.parametrize("n_new", [1, 2, 6, 25])
def test_it_goes_on_from_the_last_half(model, n_prompt, n_new):
    prompt = np.random.default_rng(n_prompt).integers(0, 11, n_prompt).tolist()
    new = write_on(model, prompt, n_new, temperature=0.0)
    assert new == most_likely(model, prompt, n_new)
    assert write_on(model, prompt, n_new, beam_size=1) == new


def test_it_ends_before_the_end_token(model):
    whole = write_on(model, [1, 2], 20, temperature=1.0, seed=4)
    end = whole[9]
    assert write_on(model, [1, 2], 20, temperature=1.0, seed=4, eos_id=end) == whole[: whole.index(end)]


def test_same_seed_same_text(model):
    one, same, other = (write_on(model, [1], 30, seed=seed) for seed in (1, 1, 2))
    assert one == same != other
    assert len(one) == 30


def test_a_model_without_a_limit():
    model = tnp.Llama(11, 16, 2, 1, d_ff=16, dtype="float64")
    assert len(write_on(model, [1, 2], 40, temperature=0.0)) == 40


def test_nothing_to_go_on_from(model):
    for ids, n in (([], 3), ([1], 0)):
        with pytest.raises(ValueError, match="write_on: expected ids and a max_len of at least 1"):
            write_on(model, ids, n)
