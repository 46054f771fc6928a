"""Jacobians, read back from the figure."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from transformer_np import plot
from transformer_np.layers import LayerNorm, Linear, ScaledDotProductAttention, Softmax


def matrix_of(fig):
    return fig.axes[0].get_images()[0].get_array()


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_softmax_has_diag_p_minus_p_pt():
    x = np.array([2.0, 1.0, 0.0])
    fig = plot.jacobian(Softmax(), x, title="a title")
    p = np.exp(x) / np.exp(x).sum()
    np.testing.assert_allclose(matrix_of(fig), np.diag(p) - np.outer(p, p), rtol=1e-12)
    ax = fig.axes[0]
    assert (ax.get_ylabel(), ax.get_xlabel(), ax.get_title()) == ("output i", "input j", "a title")
    assert labels(ax.yaxis) == labels(ax.xaxis) == ["0", "1", "2"]
    low, high = ax.get_images()[0].get_clim()
    assert low == -high  # white is 0
    written = {t.get_position(): t.get_text() for t in ax.texts}
    assert written[(1, 0)] == f"{-p[0] * p[1]:.2f}"  # column 1, row 0


def test_rows_are_outputs_and_columns_inputs():
    """A layer that is not square nor symmetric: y = x W + b, so that dy_i / dx_j = W[j, i]."""
    layer = Linear(3, 2, seed=0)
    layer.weight.grad[...] = 5
    fig = plot.jacobian(layer, np.ones((1, 3), "float32"))
    np.testing.assert_allclose(matrix_of(fig), layer.weight.data.T, rtol=1e-6)
    assert fig.axes[0].get_images()[0].get_extent() == [-0.5, 2.5, 1.5, -0.5]
    assert (layer.weight.grad == 5).all()  # the layer itself is left as it was


def test_several_axes_are_read_row_by_row():
    fig = plot.jacobian(LayerNorm(3, dtype="float64"), np.random.default_rng(0).standard_normal((1, 2, 3)))
    ax = fig.axes[0]
    assert labels(ax.xaxis) == ["0,0", "0,1", "0,2", "1,0", "1,1", "1,2"]
    assert (matrix_of(fig)[:3, 3:] == 0).all()  # rows do not see each other
    assert [line.get_ydata()[0] for line in ax.get_lines()] == [2.5, 0]
    assert [line.get_xdata()[0] for line in ax.get_lines()] == [0, 2.5]


def test_of_several_inputs_the_one_asked_for():
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((1, 1, 2, 3)), rng.standard_normal((1, 1, 4, 3)), rng.standard_normal((1, 1, 4, 5))
    layer = ScaledDotProductAttention()
    layer(q, k, v)
    fig = plot.jacobian(layer, q, k, v, wrt=2)
    expected = np.kron(layer.weights[0, 0], np.eye(5))  # y[t, c] = sum_s P[t, s] v[s, c]
    np.testing.assert_allclose(matrix_of(fig), expected, atol=1e-15)


def test_a_matrix_and_labels():
    matrix = np.array([[1.0, -2.0, 0.0]])
    fig = plot.jacobian(matrix, labels=(["out"], ["a", "b", "c"]))
    np.testing.assert_array_equal(matrix_of(fig), matrix)
    assert labels(fig.axes[0].yaxis) == ["out"]
    assert labels(fig.axes[0].xaxis) == ["a", "b", "c"]
    assert plot.jacobian(np.zeros((2, 2))).axes[0].get_images()[0].get_clim() == (-1, 1)


def test_of_many_inputs_some_labels_at_their_places():
    ax = plot.jacobian(np.eye(100)).axes[0]
    assert labels(ax.xaxis) == [str(3 * i) for i in range(34)]
    assert ax.get_xticks().tolist() == [3 * i for i in range(34)]
    assert not ax.texts


def test_given_axes_are_drawn_into():
    fig = Figure()
    ax = fig.subplots()
    assert plot.jacobian(np.eye(2), ax=ax) is fig
    assert len(ax.get_images()) == 1


def test_errors():
    with pytest.raises(TypeError, match="expected a matrix, or a layer and its inputs, got function"):
        plot.jacobian(lambda x: x)
    with pytest.raises(TypeError, match="expected a layer with forward and backward, got function"):
        plot.jacobian(lambda x: x, np.ones(3))
    with pytest.raises(ValueError, match=r"a matrix must be \(outputs, inputs\), got shape \(3,\)"):
        plot.jacobian(np.ones(3))
    with pytest.raises(ValueError, match="2000 outputs are too many to draw, at most 1024"):
        plot.jacobian(Softmax(), np.ones(2000))
    with pytest.raises(ValueError, match=r"\(2, 2\) outputs and inputs got \[1, 2\] labels"):
        plot.jacobian(np.eye(2), labels=(["a"], ["a", "b"]))
