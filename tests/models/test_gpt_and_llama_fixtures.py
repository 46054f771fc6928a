"""What Hugging Face's GPT-2 and Llama gave, from files: the same comparison where neither it nor PyTorch is installed.

tests/fixtures/make_decoder_only.py wrote them.
"""

import pathlib

import numpy as np
import pytest

import transformer_np as tnp

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"
OPTIONS = {"n_layers": 2, "d_ff": 8, "dropout": 0.0, "dtype": "float64"}
MODELS = {
    "gpt2": lambda: tnp.GPT(11, 4, 2, max_len=16, **OPTIONS),
    "llama": lambda: tnp.Llama(11, 8, 4, n_kv_heads=2, rotary_base=500.0, **OPTIONS),
}


@pytest.fixture(params=MODELS)
def model_and_facts(request):
    """A model with the weights of the file, and the file."""
    model = MODELS[request.param]()
    with np.load(FIXTURES / f"huggingface_{request.param}.npz") as file:
        facts = dict(file)
    return model.load_state_dict(under("weight.", facts)), facts


def under(prefix, facts):
    """The arrays whose name begins with `prefix`, by the rest of it."""
    return {name.removeprefix(prefix): array for name, array in facts.items() if name.startswith(prefix)}


def assert_close(got, expected, tolerance):
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * abs(expected).max())


def test_outputs_loss_and_every_gradient(model_and_facts):
    model, facts = model_and_facts
    loss_fn = tnp.CrossEntropy(ignore_index=0)
    logits = model.forward(facts["ids"], facts["mask"])
    loss = loss_fn.forward(logits, facts["targets"])
    assert_close(logits[facts["mask"]], facts["logits"][facts["mask"]], 1e-12)
    assert loss == pytest.approx(float(facts["loss"]), rel=1e-12)
    model.backward(loss_fn.backward())
    gradients = under("gradient.", facts)
    largest = max(abs(g).max() for g in gradients.values())
    for name, p in model.named_parameters():
        if name.endswith("w_k.bias"):  # truly zero: the same number added to all scores of a row changes nothing
            assert abs(p.grad).max() < 1e-13 * largest
        else:
            assert_close(p.grad, gradients.pop(name), 1e-11)


def test_ten_steps_of_adamw(model_and_facts):
    model, facts = model_and_facts
    optimizer = tnp.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1, eps=1e-6)
    step = tnp.TrainStep(model, tnp.CrossEntropy(ignore_index=0), optimizer)
    for _ in range(10):
        step(facts["ids"], facts["mask"], facts["targets"])
    trained = under("trained.", facts)
    for name, p in model.named_parameters():
        assert_close(p.data, trained[name], 1e-8)


def test_greedy_and_beam_search(model_and_facts):
    model, facts = model_and_facts
    ids, options = facts["ids"], {"mask": facts["mask"], "forbid": ()}
    np.testing.assert_array_equal(tnp.greedy(model, ids, 7, **options), facts["greedy"])
    got = tnp.beam_search(model, ids, 3, 1.0, 7, eos_id=2, length_rule="power", **options)
    for mine, theirs in zip(got.tolist(), facts["beam"].tolist(), strict=True):
        end = theirs.index(2) + 1 if 2 in theirs else len(theirs)
        assert mine[:end] == theirs[:end]
