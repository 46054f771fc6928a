"""Gradients and activations from layer to layer, read back from the figure."""

import io
import math

import numpy as np
import pytest
from matplotlib.figure import Figure

import transformer_np as tnp
from transformer_np import plot
from transformer_np.plot.by_layer import layer_of


def rows(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


@pytest.fixture
def model():
    model = tnp.Transformer(9, 9, d_model=8, n_heads=2, n_encoder_layers=2, n_decoder_layers=1, d_ff=8, dropout=0.0)
    ids = np.arange(1, 7).reshape(2, 3)
    loss_fn = tnp.CrossEntropy()
    loss_fn(model(ids, ids), ids)
    model.backward(loss_fn.backward())
    return model


def test_which_layer_a_parameter_is_of():
    assert layer_of("encoder.layers.0.feed_forward.linear1.weight") == "encoder.layers.0"
    assert layer_of("encoder.layers.11.norm1.gain") == "encoder.layers.11"
    assert layer_of("src_embedding.weight") == "src_embedding"
    assert layer_of("word_head.linear.weight") == "word_head.linear"
    assert layer_of("class_token") == "class_token"
    assert layer_of("encoder.layers.0.norm1.gain", depth=1) == "encoder"


def test_gradient_norms_of_a_model(model):
    fig = plot.gradient_norms(model, title="a title")
    (ax,) = fig.axes
    assert rows(ax) == [
        "src_embedding",
        "encoder.layers.0",
        "encoder.layers.1",
        "tgt_embedding",
        "decoder.layers.0",
        "output",
    ]
    (line,) = ax.get_lines()
    assert list(line.get_ydata()) == list(range(6))
    assert ax.get_ylim() == (5.5, -0.5)  # the first layer on top
    of_layer = [p.grad.ravel() for name, p in model.named_parameters() if name.startswith("encoder.layers.1.")]
    np.testing.assert_allclose(line.get_xdata()[2], np.linalg.norm(np.concatenate(of_layer)), rtol=1e-6)  # float32
    total = math.sqrt(sum(float(np.square(p.grad).sum()) for p in model.parameters()))
    np.testing.assert_allclose(np.linalg.norm(line.get_xdata()), total, rtol=1e-6)  # no parameter is left out
    assert ax.get_xscale() == "log"
    assert (ax.get_xlabel(), ax.get_title()) == ("norm of the gradient", "a title")


def test_gradient_norms_by_depth(model):
    assert rows(plot.gradient_norms(model, depth=1).axes[0]) == [
        "src_embedding",
        "encoder",
        "tgt_embedding",
        "decoder",
        "output",
    ]
    named = {"a.x": 3.0, "a.y": np.array([4.0]), "b": 2.0}
    ax = plot.gradient_norms(named, depth=1).axes[0]
    assert list(ax.get_lines()[0].get_xdata()) == [5, 2]


def test_norms_that_a_logarithmic_axis_has_no_place_for_are_told():
    fig = plot.gradient_norms({"a": 2.0, "b": 0.0, "c": math.nan, "d": np.array([3.0, 4.0]), "e": math.inf})
    (ax,) = fig.axes
    assert rows(ax) == ["a", "b (zero)", "c (not finite)", "d", "e (not finite)"]
    np.testing.assert_array_equal(ax.get_lines()[0].get_xdata(), [2, math.nan, math.nan, 5, math.nan])
    fig.savefig(io.BytesIO(), format="png")


def test_two_models_in_one_picture():
    fig = plot.gradient_norms({"a": 2.0, "b": 0.0}, label="one")
    (ax,) = fig.axes
    assert plot.gradient_norms({"a": 1.0, "b": 4.0}, label="other", ax=ax) is fig
    one, other = ax.get_lines()
    assert one.get_marker() != other.get_marker()  # for those who print in grey
    assert one.get_color() != other.get_color()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one", "other"]


def test_layers_that_only_the_second_has_come_below():
    ax = plot.gradient_norms({"a": 2.0, "c": 3.0}, label="one").axes[0]
    plot.gradient_norms({"a": 1.0, "b": 5.0, "c": 0.0}, label="other", ax=ax)
    assert rows(ax) == ["a", "c (other: zero)", "b"]
    assert ax.get_ylim() == (2.5, -0.5)
    np.testing.assert_array_equal(ax.get_lines()[1].get_xydata(), [[1, 0], [math.nan, 1], [5, 2]])
    ax = plot.activations({"a": np.ones(2), "c": np.ones(2)}).axes[0]
    plot.activations({"b": np.zeros(2), "c": np.zeros(2)}, ax=ax)
    assert rows(ax) == ["a", "c", "b"]
    assert ax.containers[1].lines[0].get_ydata().tolist() == [2.2, 1.2]


def test_activations_of_a_dict():
    outputs = {"first": np.array([1.0, 3.0]), "second": np.array([[-4.0, 4.0]])}
    fig = plot.activations(outputs, title="a title")
    (ax,) = fig.axes
    assert rows(ax) == ["first", "second"]
    assert ax.get_ylim() == (1.5, -0.5)
    (bars,) = ax.containers
    dots, _, (whiskers,) = bars.lines
    assert dots.get_xydata().tolist() == [[2, 0], [0, 1]]
    assert [segment[:, 0].tolist() for segment in whiskers.get_segments()] == [[1, 3], [-4, 4]]  # mean ± std
    (sizes,) = [line for line in ax.get_lines() if line.get_markerfacecolor() == "none"]
    np.testing.assert_allclose(sizes.get_xdata(), [math.sqrt(5), 4], rtol=1e-15)
    assert ax.get_xlabel() == "mean ± standard deviation\nhollow: root of the mean square"
    assert ax.get_title() == "a title"


def test_two_sets_of_activations_do_not_hide_each_other():
    fig = plot.activations({"a": np.ones(2)}, label="one")
    plot.activations({"a": np.ones(2)}, label="other", ax=fig.axes[0])
    first, second = (bars.lines[0].get_ydata()[0] for bars in fig.axes[0].containers)
    assert first != second
    assert [text.get_text() for text in fig.axes[0].get_legend().get_texts()] == ["one", "other"]


def test_activations_of_a_trace():
    model = tnp.GPT(9, d_model=8, n_heads=2, n_layers=2, d_ff=8, dropout=0.0, max_len=4)
    trace = tnp.trace(model)(np.array([[1, 2, 3]]))
    (ax,) = plot.activations(trace).axes
    names = ["embedding", "positions", "dropout", "layers.0", "layers.1", "final_norm", "output", "the model"]
    assert rows(ax) == names
    means = dict(zip(names, ax.containers[0].lines[0].get_xdata(), strict=True))
    x = model.embedding(np.array([[1, 2, 3]])) + model.positions(np.array([[0, 1, 2]]))  # (1, 3, 8)
    may_look = np.tri(3, dtype=bool)
    first = model.layers[0](x, may_look)
    second = model.layers[1](first, may_look)
    expected = {"dropout": x, "layers.0": first, "layers.1": second, "the model": model(np.array([[1, 2, 3]]))}
    for name, array in expected.items():
        np.testing.assert_allclose(means[name], array.mean(dtype="float64"), rtol=1e-5, atol=1e-7)  # float32
    assert "layers.0.norm1" in rows(plot.activations(trace, depth=3).axes[0])


def test_given_axes_are_drawn_into():
    fig = Figure()
    left, right = fig.subplots(1, 2)
    assert plot.gradient_norms({"a": 1.0}, ax=left) is fig
    assert plot.activations({"a": np.ones(2)}, ax=right) is fig
    assert (len(left.get_lines()), len(right.containers)) == (1, 1)


def test_errors():
    for draw in (plot.gradient_norms, plot.activations):
        with pytest.raises(ValueError, match=f"{draw.__name__}: got nothing to draw"):
            draw({})
        with pytest.raises(TypeError, match=f"{draw.__name__}: expected a .*, got float 1.5"):
            draw(1.5)
