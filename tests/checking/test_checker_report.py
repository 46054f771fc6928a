"""What a report says, in every form, and what can be run again from it."""

import itertools
import json

import numpy as np
import pytest
from sample_layers import LayerNorm, Linear, broken, x_of

from transformer_np.checking import OUTCOMES, gradcheck
from transformer_np.checking.report import PRECEDENCE, outcome


def wrong_linear():
    def backward(self, dy):
        dx = Linear.backward(self, dy)
        self.dW[1, 2] *= 3
        return dx

    return broken(Linear, backward=backward)()


@pytest.fixture(scope="module")
def failed():
    return gradcheck(wrong_linear(), x_of(2, 3, 5), seed=7)


def test_text_names_what_a_reader_needs(failed):
    text = str(failed)
    assert text.startswith("FAIL  Linear: the gradient of W is wrong")
    for part in ("W[1, 2]", "±", "PASS     x (2, 3, 5)", "seed 7", "Taylor rate", "to see it again"):
        assert part in text
    assert not failed
    assert failed.array("W").entries[0].index == (1, 2)
    with pytest.raises(KeyError, match="no array named 'V'"):
        failed.array("V")


def test_json_holds_the_same(failed):
    data = json.loads(failed.to_json())
    assert data["status"] == "FAIL"
    assert data["ok"] is False
    assert data["seed"] == 7
    (w,) = [a for a in data["arrays"] if a["status"] == "FAIL"]
    assert w["entries"][0]["index"] == [1, 2]
    assert w["entries"][0]["analytic"] == pytest.approx(3 * w["entries"][0]["numeric"], rel=1e-6)
    assert json.loads(gradcheck(Linear(), x_of(3, 5) * np.nan).to_json())["status"] == "NONFINITE"


def test_html_is_escaped_and_shows_the_picture(failed):
    page = failed._repr_html_()
    assert "data:image/png;base64," in page
    bad = broken(Linear, forward=lambda self, x: (_ for _ in ()).throw(ValueError("<script>")))()
    assert "<script>" not in gradcheck(bad, x_of(3, 5))._repr_html_()
    assert "img" not in gradcheck(Linear(), x_of(3, 5))._repr_html_()


def test_pictures(failed):
    figure = failed.plot()
    assert [axis.get_title() for axis in figure.axes[:3]] == [
        "backward (analytic)",
        "differences (numeric)",
        "difference",
    ]
    passed = gradcheck(LayerNorm(), x_of(3, 6)).plot("x")
    assert {axis.get_title() for axis in passed.axes} == {"error against step", "Taylor remainder"}
    with pytest.raises(ValueError, match="compared no array"):
        gradcheck(Linear(), np.zeros(3, int)).plot()


def test_the_smallest_inputs_that_still_fail(failed):
    assert failed.smallest == {"x": (1, 1, 5)}  # the width is fixed by W


def mean_forward(x):
    return x.mean(0), x.shape


def mean_backward(dy, shape):
    return np.broadcast_to(dy, shape).copy()  # forgets 1/n, which does not show for n = 1


def test_functions_shrink_to_where_the_mistake_still_shows():
    report = gradcheck((mean_forward, mean_backward), x_of(6, 5))
    assert report.smallest == {"x": (2, 1)}


def test_the_snippet_reproduces_the_failure():
    report = gradcheck((mean_forward, mean_backward), x_of(6, 5), seed=3)
    lines = report.snippet.splitlines()
    assert len(lines) == 3
    lines[0] = lines[0].replace("transformer_np as tnp", "transformer_np.checking as tnp")
    printed = []
    exec("\n".join(lines), {"print": printed.append})
    assert printed[0].status == "FAIL"
    assert printed[0].seed == 3


def test_the_same_seed_gives_the_same_report():
    a, b = (gradcheck(wrong_linear(), x_of(6, 5), seed=11).to_dict() for _ in range(2))
    for report in (a, b):
        del report["seconds"]
    assert a == b
    assert (
        gradcheck(LayerNorm(), x_of(3, 6), seed=1).array("x").slopes
        != gradcheck(LayerNorm(), x_of(3, 6), seed=2).array("x").slopes
    )


def test_the_hint_ladder_keeps_the_fix_for_last(failed):
    rungs = [failed.hint(level) for level in (1, 2, 3, 4)]
    assert all(rungs)
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(rungs))
    assert "W" in rungs[0]
    if failed.diagnoses[0].fix:
        assert failed.diagnoses[0].fix not in str(failed)
    assert "Nothing to fix" in gradcheck(Linear(), x_of(3, 5)).hint()


def test_a_known_mistake_is_named():
    def backward(self, dy):
        dx = Linear.backward(self, dy)
        self.db = self.db / 6
        return dx

    report = gradcheck(broken(Linear, backward=backward)(), x_of(2, 3, 5))
    assert report.diagnoses
    assert report.diagnoses[0].kind in ("constant factor", "extra sum")


def test_one_outcome_stands_for_several():
    assert set(PRECEDENCE) == set(OUTCOMES)
    assert outcome(["PASS", "KINK", "FAIL", "VACUOUS"]) == "FAIL"
    assert outcome([]) == "PASS"
