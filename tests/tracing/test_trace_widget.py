"""The slider of a notebook: it shows the step that it stands at, and hands it out."""

import dataclasses
import html
import sys

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.tracing.widget import describe

X = np.random.default_rng(0).standard_normal((2, 3, 4))


def test_the_slider_shows_each_step():
    pytest.importorskip("ipywidgets")
    trace = tnp.trace(tnp.layers.FeedForward(4, 8, seed=0, dtype="float64"))(X)
    box = trace.widget()
    slider, view = box.children
    assert (slider.min, slider.max) == (0, len(trace.steps) - 1)
    for i, step in enumerate(trace.steps):
        slider.value = i
        assert box.step is step
        assert f"{step.phase}: {step.name}" in view.value
        first = np.asarray(step.value).reshape(-1)[0]
        assert f"{first:.4g}" in view.value


def test_a_step_in_words_cuts_large_arrays():
    trace = tnp.trace(tnp.layers.ReLU())(np.arange(200.0).reshape(10, 20) - 3)
    step = trace.step("y")
    text = describe(step)
    assert "(10, 20) (the first ones)" in text
    numbers = text.split("<pre>")[1].split("</pre>")[0]
    shown = np.array([line.split() for line in numbers.splitlines()], float)
    np.testing.assert_array_equal(shown, np.maximum(np.arange(200.0).reshape(10, 20) - 3, 0)[:8, :8])
    assert html.escape(step.source) in text


def test_a_source_with_signs_of_html_is_escaped():
    trace = tnp.trace(tnp.layers.GELU())(X)
    step = dataclasses.replace(trace.steps[0], source="y = x < 0 & x")
    assert "<code>y = x &lt; 0 &amp; x</code>" in describe(step)


def test_without_ipywidgets_it_says_what_to_install(monkeypatch):
    trace = tnp.trace(tnp.layers.ReLU())(X)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(ImportError, match=r"needs ipywidgets: pip install"):
        trace.widget()
