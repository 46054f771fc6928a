"""The V of a central difference, read back from the figure."""

import io

import numpy as np
import pytest
from matplotlib.figure import Figure

from transformer_np import plot
from transformer_np.layers import LayerNorm, Softmax


def curves(ax):
    """The curves, without the lines that mark where the best h lies."""
    return [line for line in ax.get_lines() if len(line.get_xdata()) > 2]


def test_the_error_of_a_cube_is_h_squared():
    """(x + h)^3 - (x - h)^3 over 2h is 3x² + h²: at x = 1 the relative error is h² / 3, until rounding."""
    fig = plot.error_against_h(lambda x: x**3, np.ones(1), lambda x: 3 * x**2, h=[0.5, 0.1, 1e-2, 1e-3, 1e-12])
    (ax,) = fig.axes
    single, double = curves(ax)
    np.testing.assert_allclose(double.get_xdata(), [0.5, 0.1, 1e-2, 1e-3, 1e-12])
    np.testing.assert_allclose(double.get_ydata()[:4], [0.25 / 3, 0.01 / 3, 1e-4 / 3, 1e-6 / 3], rtol=1e-5)
    assert double.get_ydata()[4] > 1e-6  # rounding: eps / h
    assert single.get_ydata()[4] == 1  # 1 + 1e-12 is 1 in float32, so nothing moves
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step h", "relative error")


def test_the_best_h_is_marked():
    """Of a smooth function it lies near eps^(1/3): 6e-6 in float64, 5e-3 in float32."""
    fig = plot.error_against_h(LayerNorm(6), np.random.default_rng(0).standard_normal((2, 6)), title="a title")
    (ax,) = fig.axes
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert [name.split(":")[0] for name in names] == ["float32", "float64"]
    marks = [line.get_xdata()[0] for line in ax.get_lines() if len(line.get_xdata()) == 2]
    for line, mark, eps in zip(curves(ax), marks, (2**-23, 2**-52), strict=True):
        assert mark == line.get_xdata()[np.argmin(line.get_ydata())]
        assert 0.1 < mark / eps ** (1 / 3) < 10
    assert f"best h {marks[1]:.0e}" in names[1]
    assert ax.get_title() == "a title"


def test_a_wrong_gradient_gives_a_flat_line():
    fig = plot.error_against_h(np.sin, np.ones(2), lambda x: 1.5 * np.cos(x), dtypes=["float64"])
    (line,) = curves(fig.axes[0])
    np.testing.assert_allclose(line.get_ydata()[8:20], 1 / 3, rtol=1e-4)


def test_a_strangers_layer_and_a_given_gradient():
    class Square:
        def forward(self, x):
            self.x = x
            return x * x

        def backward(self, dy):
            return 2 * self.x * dy

    fig = plot.error_against_h(Square(), np.array([1.0, 2.0]), dtypes=["float64"])
    assert min(curves(fig.axes[0])[0].get_ydata()) < 1e-9
    fig = plot.error_against_h(np.square, np.array([1.0, 2.0]), np.array([2.0, 4.0]), h=[0.5, 0.25, 0.125])
    assert all((line.get_ydata() == 1e-18).all() for line in curves(fig.axes[0]))  # exact: drawn at the floor
    fig.savefig(io.BytesIO(), format="png")


def test_the_layer_is_left_as_it_was_and_axes_are_drawn_into():
    layer = LayerNorm(4)
    fig = Figure()
    ax = fig.subplots()
    assert plot.error_against_h(layer, np.arange(4.0), h=[1e-3, 1e-4, 1e-5], ax=ax) is fig
    assert layer.dtype == np.float32
    assert not any(p.has_grad for p in layer.parameters())


def test_dy_is_not_the_x_that_everybody_draws():
    """Of a layer norm, dy = x has a gradient of almost 0, and differences would seem to be of no use."""
    fig = plot.error_against_h(LayerNorm(8), np.random.default_rng(0).standard_normal((1, 8)), h=[1e-4, 1e-5, 1e-6])
    assert min(curves(fig.axes[0])[1].get_ydata()) < 1e-8


def test_steps_out_of_the_domain_are_left_out():
    fig = plot.error_against_h(np.log, np.array([0.5]), lambda x: 1 / x, h=[1.0, 1e-3, 1e-4], dtypes=["float64"])
    assert np.isnan(curves(fig.axes[0])[0].get_ydata()[0])
    with pytest.raises(ValueError, match="in float64, f is not finite at any x ± h"):
        plot.error_against_h(np.log, np.array([0.5]), lambda x: 1 / x, h=[1.0], dtypes=["float64"])


def test_errors():
    with pytest.raises(TypeError, match=r"expected a layer or a function, got float 1\.0"):
        plot.error_against_h(1.0, np.ones(2))
    for arguments in ((np.sin,), (np.sin, np.ones(2)), (Softmax(),)):
        with pytest.raises(ValueError, match="a layer needs x; a function needs x and its gradient"):
            plot.error_against_h(*arguments)
    with pytest.raises(ValueError, match=r"needs a gradient of shape \(2,\) that is not zero"):
        plot.error_against_h(np.sin, np.ones(2), np.ones(3))
    with pytest.raises(ValueError, match="that is not zero"):
        plot.error_against_h(np.sin, np.ones(2), np.zeros(2))
