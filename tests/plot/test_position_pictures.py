"""Pictures of positional encodings, read back from the figure."""

import math

import numpy as np
import pytest
from matplotlib.figure import Figure

from transformer_np import plot
from transformer_np.layers import Embedding, LearnedPositions, RotaryPositions, SinusoidalPositions


def image_of(fig):
    (image,) = fig.axes[0].get_images()
    return image


def test_sinusoids_with_position_0_on_top():
    fig = plot.positions(SinusoidalPositions(6), length=10, title="a title")
    image, ax = image_of(fig), fig.axes[0]
    table = image.get_array()
    assert table.shape == (10, 6)
    # PE[3, 2i] = sin(3 / 10000^(2i/6)), PE[3, 2i+1] the cosine.
    waves = [3 / 10000 ** (i / 3) for i in range(3)]
    np.testing.assert_allclose(table[3], [f(w) for w in waves for f in (math.sin, math.cos)], rtol=1e-12)
    assert image.get_extent() == [-0.5, 5.5, 9.5, -0.5]
    assert ax.get_ylim() == (9.5, -0.5)
    assert (ax.get_ylabel(), ax.get_xlabel(), ax.get_title()) == ("position", "feature", "a title")
    assert image.get_clim() == (-1, 1)  # symmetric: white is 0
    assert fig.axes[1].get_ylabel() == "value"


def test_learned_tables_and_plain_ones():
    layer = LearnedPositions(4, 20, seed=0)
    np.testing.assert_array_equal(image_of(plot.positions(layer)).get_array(), layer.weight.data)
    np.testing.assert_array_equal(image_of(plot.positions(layer, length=3)).get_array(), layer.weight.data[:3])
    of_gpt = Embedding(20, 4, scaled=False, seed=0)
    np.testing.assert_array_equal(image_of(plot.positions(of_gpt)).get_array(), of_gpt.weight.data)
    table = np.arange(6.0).reshape(3, 2)
    image = image_of(plot.positions(table))
    np.testing.assert_array_equal(image.get_array(), table)
    assert image.get_clim() == (-5, 5)
    assert image_of(plot.positions(np.zeros((2, 2)))).get_clim() == (-1, 1)


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_angles_of_rotary_positions(layout):
    fig = plot.positions(RotaryPositions(8, layout), length=50)
    image = image_of(fig)
    angles = np.arange(50)[:, None] * 10000.0 ** (-np.arange(0, 8, 2) / 8)
    np.testing.assert_allclose(np.exp(1j * image.get_array()), np.exp(1j * angles), atol=1e-12)  # equal but for turns
    assert image.get_clim() == (-math.pi, math.pi)
    assert fig.axes[0].get_xlabel() == "pair of features"
    assert [label.get_text() for label in fig.axes[1].get_yticklabels()] == ["−π", "0", "π"]


def test_given_axes_are_drawn_into():
    fig = Figure()
    ax = fig.subplots()
    assert plot.positions(np.ones((2, 2)), ax=ax) is fig
    assert len(ax.get_images()) == 1


def test_errors():
    with pytest.raises(ValueError, match=r"a table must be \(length, D\), got shape \(3,\)"):
        plot.positions(np.ones(3))
    with pytest.raises(ValueError, match=r"got shape \(0, 4\)"):
        plot.positions(np.ones((0, 4)))
    with pytest.raises(TypeError, match=r"expected a table \(length, D\) or a layer of positions, got str 'sin'"):
        plot.positions("sin")
