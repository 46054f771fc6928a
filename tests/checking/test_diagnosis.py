"""The diagnosis names known mistakes, says both where two give the same numbers, and is never certain and wrong."""

import json
from dataclasses import replace

import numpy as np
import pytest
from diagnosed import evidence, of_mistake

from transformer_np.checking import diagnosis
from transformer_np.checking.diagnosis import diagnose, known, recognise
from transformer_np.checking.evidence import Diagnosis, Evidence
from transformer_np.checking.mistakes import LAYERS, MISTAKES

WRONG = [mistake for mistake in MISTAKES if not mistake.equivalent]
BY_TITLE = {mistake.title: mistake for mistake in MISTAKES}


def judged(mistakes, seeds):
    """(right kind first, certain and wrong) for each Evidence of these mistakes."""
    out = []
    for mistake in mistakes:
        for seed in seeds:
            for given in of_mistake(mistake, seed):
                first = diagnose(given)[0]
                right = first.kind == mistake.kind
                out.append((right, first.certainty == "certain" and not right, mistake.title, given.name, first))
    return out


def test_nine_in_ten_known_mistakes_are_named_and_none_wrongly_for_certain():
    # Each mistake with one seed of its own: many seeds over the whole, in seconds.
    found = [row for i, mistake in enumerate(WRONG) for row in judged([mistake], [i % 7])]
    assert [row[2:] for row in found if row[1]] == []
    assert sum(row[0] for row in found) >= 0.9 * len(found)


@pytest.mark.slow
def test_the_same_over_many_seeds():
    found = judged(WRONG, (8, 9))
    assert [row[2:] for row in found if row[1]] == []
    assert sum(row[0] for row in found) >= 0.9 * len(found)


def test_without_the_museum_it_is_never_certain_and_wrong(monkeypatch):
    """Every layer is one never seen before: only the general rules speak."""
    monkeypatch.setattr(known, "recognise", lambda e: [])
    found = judged(WRONG, [0, 1])
    assert [row[2:] for row in found if row[1]] == []
    # Half of them are named even so; the rest is an honest "unknown" or a guess marked as likely.
    assert sum(row[0] for row in found) >= 0.5 * len(found)


def test_a_mistake_that_the_museum_lacks_is_never_certain_and_wrong():
    """Each mistake is taken out of the museum in turn, then looked for."""
    for i, mistake in enumerate(WRONG):
        kept = list(mistake.layer.mistakes)
        mistake.layer.mistakes.remove(mistake)
        try:
            assert [row[2:] for row in judged([mistake], [i % 5]) if row[1]] == []
        finally:
            mistake.layer.mistakes[:] = kept


@pytest.mark.parametrize("sizes", [(1, 1, 4), (2, 1, 4), (2, 2, 2), (3, 3, 3), (1, 3, 1)], ids=str)
def test_poor_data_never_give_a_wrong_certainty(sizes):
    """Length one, width one and equal sizes make different mistakes agree."""
    rng = np.random.default_rng(4)
    D = sizes[-1]
    x, one = rng.normal(size=sizes), np.ones(D)
    square, vector = rng.normal(size=(D, D)), rng.normal(size=D)
    values = {
        "linear": {"x": x, "W": square, "b": vector},
        "layer norm": {"x": x, "gamma": one, "beta": vector, "eps": 1e-5},
        "softmax": {"x": x},
        "relu": {"x": x},
        "silu": {"x": x},
        "gelu": {"x": x},
        "rms norm": {"x": x, "gamma": one, "eps": 1e-5},
        "learned positions": {"x": x, "table": rng.normal(size=(5, D))},
        "pre-norm residual": {"x": x, "W": square, "b": vector, "gamma": one, "beta": vector, "eps": 1e-5},
        "attention": {
            "q": x,
            "k": rng.normal(size=sizes),
            "v": rng.normal(size=sizes),
            "mask": np.array(True),
            "causal": False,
        },
    }
    for mistake in WRONG:
        if mistake.layer.name not in values:
            continue
        try:
            with np.errstate(all="ignore"):
                cases = of_mistake(mistake, 3, values[mistake.layer.name])
        except (ValueError, IndexError):
            continue  # this mistake cannot be written for these sizes
        for given in cases:
            if given.analytic.shape == given.numeric.shape and np.allclose(given.analytic, given.numeric, atol=1e-9):
                continue  # hidden by the data: the engine has no failure to explain
            first = diagnose(given)[0]
            assert first.certainty != "certain" or first.kind == mistake.kind, (mistake.title, given.name, first)


def test_mistakes_with_the_same_gradient_are_named_together():
    (given,) = of_mistake(BY_TITLE["embedding/rows assigned"])
    first = diagnose(given)[0]
    assert first.certainty == "likely"
    named = first.mistake + " ".join(first.alternatives)
    assert "embedding/rows assigned" in named
    assert "embedding/fancy index adds once" in named


def renamed(given, names):
    """The same evidence with other names for its arrays."""

    def turn(arrays):
        return {names.get(name, name): array for name, array in arrays.items()}

    return replace(
        given,
        name=names.get(given.name, given.name),
        inputs=turn(given.inputs),
        parameters=turn(given.parameters),
        analytic_all=turn(given.analytic_all),
        numeric_all=turn(given.numeric_all),
    )


def test_names_do_not_matter():
    given = of_mistake(BY_TITLE["layer norm/gamma outside the means"])[0]
    first = diagnose(renamed(given, {"x": "batch", "gamma": "apple", "beta": "pear"}))[0]
    assert (first.mistake, first.certainty) == ("layer norm/gamma outside the means", "certain")


def test_settings_that_the_object_does_not_tell_are_found():
    given = of_mistake(BY_TITLE["self-attention/value path left out"])[0]
    first = diagnose(replace(given, attributes={}))[0]
    assert (first.mistake, first.certainty) == ("self-attention/value path left out", "certain")


def test_a_weight_kept_as_outputs_by_inputs_is_understood():
    rng = np.random.default_rng(2)
    x, weight = rng.normal(size=(3, 4, 5)), rng.normal(size=(6, 5))
    y = x @ weight.T
    dy = rng.normal(size=y.shape)
    right = {"x": dy @ weight, "weight": np.einsum("bto,bti->oi", dy, x)}
    wrong = {**right, "weight": right["weight"] / 3}
    first = diagnose(evidence("weight", {"x": x}, {"weight": weight}, {}, y, dy, wrong, right))[0]
    assert (first.mistake, first.certainty) == ("linear/weight divided by the batch", "certain")


def test_a_class_called_layer_norm_is_not_believed():
    rng = np.random.default_rng(0)
    x, gamma, beta = rng.normal(size=(3, 4, 6)), rng.normal(size=6), rng.normal(size=6)
    y = np.tanh(x) * gamma + beta
    parameters = {"gamma": gamma, "beta": beta}
    given = Evidence("x", "input", y, y + 1, 1e-9, {"x": x}, parameters, y, y, class_name="LayerNorm")
    assert recognise(given) == []


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name.replace(" ", "-"))
def test_every_layer_of_the_museum_recognises_itself(layer):
    mistake = next(m for m in layer.mistakes if not m.equivalent)
    assert layer.name in recognise(of_mistake(mistake)[0])


def test_the_weight_of_a_term_is_read():
    """Half of LayerNorm's mean term: no museum holds it, the fit reads 0.5."""
    layer = next(layer for layer in LAYERS if layer.name == "layer norm")
    rng = np.random.default_rng(5)
    values = layer.draw(rng)
    y, cache = layer.forward(**values)
    dy = rng.normal(size=y.shape)
    right = layer.backward(dy, cache)
    dn = dy * values["gamma"]
    wrong = {**right, "x": right["x"] + 0.5 * dn.mean(-1, keepdims=True) / cache.s}
    given = evidence("x", {"x": values["x"]}, {n: values[n] for n in ("gamma", "beta")}, {}, y, dy, wrong, right)
    first = diagnose(given)[0]
    assert (first.kind, first.certainty) == ("missing term", "certain")
    assert "the mean term has the weight 0.5 instead of 1" in first.shape_of_error


def plain(a, n, **more):
    """Evidence about an array of a layer that says nothing else."""
    return Evidence("x", "input", np.asarray(a, float), np.asarray(n, float), 1e-10, **more)


def test_a_constant_is_recognised_as_every_size_that_it_may_be():
    n = np.random.default_rng(0).normal(size=(4, 4, 3))
    first = diagnose(plain(n / 4, n, output=n, dy=n + 1))[0]
    assert first.kind == "constant factor"
    assert "one over the batch size B = 4" in first.shape_of_error
    assert "one over the length T = 4" in first.shape_of_error


def test_p_and_d_k_are_recognised():
    n = np.random.default_rng(0).normal(size=(2, 5, 7))
    assert "1 - p = 0.7" in diagnose(plain(n * 0.7, n, attributes={"p": 0.3}, output=n))[0].shape_of_error
    wide = np.random.default_rng(0).normal(size=(2, 5, 24))
    found = diagnose(plain(wide * np.sqrt(6), wide, attributes={"n_heads": 4}, output=wide))[0]
    assert "√d_k = √6" in found.shape_of_error


def test_a_single_number_is_never_enough():
    first = diagnose(plain([2.0], [1.0]))[0]
    assert first.certainty != "certain"


def test_a_wide_error_bar_is_never_enough():
    n = np.random.default_rng(0).normal(size=(3, 4, 5))
    given = replace(plain(-n, n, output=n, dy=n + 1), error_bar=np.full(n.shape, 1e-3))
    assert diagnose(given)[0].kind == "sign"
    assert diagnose(given)[0].certainty == "likely"


def test_an_upstream_equal_to_the_input_is_never_enough():
    x = np.random.default_rng(0).normal(size=(3, 4, 5))
    given = plain(-2 * x, 2 * x, inputs={"x": x}, output=x**2, dy=x)
    assert diagnose(given)[0].certainty == "likely"


def test_nothing_known_is_said_to_be_unknown():
    rng = np.random.default_rng(0)
    (only,) = diagnose(plain(rng.normal(size=(3, 4, 5)), rng.normal(size=(3, 4, 5))))
    assert (only.kind, only.certainty) == ("unknown", "unknown")
    assert "cosine" in only.shape_of_error


def test_nan_is_said_and_located():
    n = np.ones((2, 3))
    a = n.copy()
    a[1, 2] = np.nan
    (only,) = diagnose(plain(a, n))
    assert "1 of 6 entries are NaN" in only.where
    assert "x[1, 2]" in only.shape_of_error


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (1, 1), (3,)], ids=str)
def test_odd_shapes_are_answered(shape):
    found = diagnose(plain(np.full(shape, 2.0), np.full(shape, 1.0), output=np.ones(shape), dy=np.ones(shape)))
    assert found
    assert found[0].certainty != "certain"


def test_the_ladder_shows_the_fix_only_when_asked():
    first = diagnose(of_mistake(BY_TITLE["softmax/diagonal only"])[0])[0]
    assert len(first.hints) == 4
    assert first.hints[0].startswith("the gradient of the input x")
    assert first.fix not in str(first)
    assert first.fix in first.text(show_fix=True)
    assert "fix" not in first.to_dict()
    assert json.loads(json.dumps(first.to_dict(show_fix=True)))["fix"] == first.fix


def test_the_evidence_is_not_touched():
    (given,) = of_mistake(BY_TITLE["softmax/diagonal only"])
    copies = {name: np.array(getattr(given, name)) for name in ("analytic", "numeric", "output", "dy")}
    diagnose(given)
    assert all(np.array_equal(getattr(given, name), copy) for name, copy in copies.items())


def test_words_outside_the_list_are_refused():
    with pytest.raises(ValueError, match="kind is 'odd'"):
        Diagnosis("odd", "likely", "x", "", "")
    with pytest.raises(ValueError, match="certainty is 'sure'"):
        Diagnosis("zero", "sure", "x", "", "")
    with pytest.raises(ValueError, match="kind is 'weight'"):
        Evidence("x", "weight", np.ones(1), np.ones(1), 0.0)


def test_the_package_offers_its_two_names():
    assert set(diagnosis.__all__) == {"diagnose", "recognise"}
