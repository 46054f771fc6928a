"""The pictures, read back from the figure: what is drawn where, and what it is called."""

import io

import numpy as np
import pytest
from matplotlib import font_manager
from matplotlib.figure import Figure

from transformer_np import plot
from transformer_np.plot import figures

QUERIES, KEYS = ["2", "0", "년", " 1", "<eos>"], ["May", " 3", ",", " 2", "0", "2", "6"]


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def weights_of(*shape, seed=0):
    w = np.random.default_rng(seed).random(shape)
    return w / w.sum(-1, keepdims=True)


def test_bp77_heat_map_cut_or_mislabelled():
    """Five queries and seven keys: every row and column whole, rows are queries, columns keys, all labels there."""
    w = weights_of(5, 7)
    tokens = ["q0", "q1", "q2", "q3", "q4"], ["k0", "k1", "k2", "k3", "k4", "k5", "k6"]
    ax = plot.attention(w, *tokens).axes[0]
    assert ax.get_ylim() == (4.5, -0.5)  # the first row on top, and no half row cut off
    assert ax.get_xlim() == (-0.5, 6.5)
    (image,) = ax.get_images()
    np.testing.assert_array_equal(image.get_array(), w)
    assert image.get_extent() == [-0.5, 6.5, 4.5, -0.5]
    assert labels(ax.yaxis) == tokens[0]
    assert labels(ax.xaxis) == tokens[1]
    assert ax.get_yticks().tolist() == list(range(5))
    assert ax.get_xticks().tolist() == list(range(7))
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("query", "key")
    assert image.get_clim() == (0, 1)


def test_a_square_map_is_not_transposed():
    w = np.zeros((3, 3))
    w[0, 2] = 1  # query 0 looks at key 2
    (image,) = plot.attention(w, list("abc"), list("abc")).axes[0].get_images()
    assert image.get_array()[0, 2] == 1
    assert image.get_array()[2, 0] == 0


def test_heads_side_by_side():
    w = weights_of(4, 5, 7)
    fig = plot.attention(w, QUERIES, KEYS, title="a title")
    assert [ax.get_title() for ax in fig.axes] == ["head 1", "head 2", "head 3", "head 4"]
    for ax, head in zip(fig.axes, w, strict=True):
        np.testing.assert_array_equal(ax.get_images()[0].get_array(), head)
        assert len(labels(ax.xaxis)) == 7
        assert ax.get_ylim() == (4.5, -0.5)
    assert len(labels(fig.axes[0].yaxis)) == 5
    assert labels(fig.axes[1].yaxis) == []  # the rows are the same
    assert fig.get_suptitle().startswith("a title")


def test_spaces_of_tokens_are_not_shown():
    ax = plot.attention(weights_of(1, 2), [" a"], ["b ", " c"]).axes[0]
    assert labels(ax.xaxis) == ["b", "c"]
    assert labels(ax.yaxis) == ["a"]


def test_letters_that_no_font_has(monkeypatch):
    dejavu = [font for font in font_manager.fontManager.ttflist if font.name.startswith("DejaVu")]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", dejavu)  # they come with matplotlib, and have no Hangul
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    fig = plot.attention(weights_of(2, 2), ["년", "x"], ["é", "y"], title="a title")
    assert labels(fig.axes[0].yaxis) == ["U+B144", "x"]
    assert labels(fig.axes[0].xaxis) == ["é", "y"]
    assert "code points stand for letters that no installed font has" in fig.get_suptitle()
    fig.savefig(io.BytesIO(), format="png")  # warnings are errors here: no glyph is missing
    assert plot.attention(weights_of(1, 1), ["x"], ["y"]).get_suptitle() == ""


def test_a_font_that_has_them_is_found(monkeypatch):
    class Entry:
        def __init__(self, name):
            self.name, self.fname, self.style, self.weight = name, name, "normal", 400

    covered = {"Latin": set("abc"), "Korean": set("년월"), "Both": set("년ж"), "Last Resort": set("년월ж")}
    monkeypatch.setattr(figures, "_covered", lambda path: covered.get(path, set("abc")))
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [Entry(name) for name in covered])
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    assert figures.families_for(["a", "b"]) == (["DejaVu Sans"], set())
    assert figures.families_for(["년월", "ж a"]) == (["DejaVu Sans", "Korean", "Both"], set())
    assert figures.families_for(["년", "字"]) == (["DejaVu Sans", "Korean"], {"字"})


def test_a_broken_font_file_is_passed_over(tmp_path):
    path = tmp_path / "broken.ttf"
    path.write_bytes(b"no font")
    assert figures._covered(path) == set()


def test_given_axes_are_drawn_into():
    fig = Figure()
    ax = fig.subplots()
    assert plot.attention(weights_of(2, 3), ["a", "b"], ["c", "d", "e"], ax=ax) is fig
    assert len(ax.get_images()) == 1
    fig = Figure()
    grid = fig.subplots(2, 2)
    assert plot.attention(weights_of(4, 2, 3), ["a", "b"], ["c", "d", "e"], ax=grid) is fig
    assert all(len(ax.get_images()) == 1 for ax in grid.flat)
    fig = Figure()
    ax = fig.subplots()
    assert plot.losses([2.0, 1.0], ax=ax) is fig
    assert len(ax.get_lines()) == 2


def test_attention_errors():
    with pytest.raises(ValueError, match=r"weights of shape \(2, 3\) need 2 query and 3 key tokens, got 3 and 2"):
        plot.attention(weights_of(2, 3), ["a", "b", "c"], ["d", "e"])
    with pytest.raises(ValueError, match=r"got shape \(2, 4, 2, 3\); of a batch .* draw one sentence, weights\[0\]"):
        plot.attention(weights_of(2, 4, 2, 3), ["a", "b"], ["c", "d", "e"])
    with pytest.raises(ValueError, match="2 heads need as many axes, got 1"):
        plot.attention(weights_of(2, 1, 1), ["a"], ["b"], ax=Figure().subplots())


def test_the_loss_curve():
    values, rates = [4.0, 2.0, 3.0], [0.1, 0.2, 0.1]
    fig = plot.losses(values, rates)
    left, right = fig.axes
    loss, mean = left.get_lines()
    np.testing.assert_array_equal(loss.get_xydata(), [[1, 4], [2, 2], [3, 3]])
    # Mean of weights 0.9^age: (0.9 * 4 + 2) / 1.9, and (0.81 * 4 + 0.9 * 2 + 3) / 2.71.
    np.testing.assert_allclose(mean.get_ydata(), [4, 5.6 / 1.9, 8.04 / 2.71], rtol=1e-12)
    assert left.get_yscale() == "log"
    assert (left.get_xlabel(), left.get_ylabel()) == ("step", "loss (nats a token)")
    np.testing.assert_array_equal(right.get_lines()[0].get_xydata(), [[1, 0.1], [2, 0.2], [3, 0.1]])
    assert right.get_ylabel() == "learning rate"
    assert right.get_ylim()[0] == 0
    names = [text.get_text() for text in right.get_legend().get_texts()]
    assert names == ["loss of a step", "running mean", "learning rate"]


def test_the_loss_curve_alone():
    fig = plot.losses([1.0])
    assert len(fig.axes) == 1
    with pytest.raises(ValueError, match="got no losses to draw"):
        plot.losses([])


def test_no_global_figure_is_made():
    """Figures that pyplot knows of would pile up in memory, and pop up in notebooks twice."""
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    plot.losses([1.0])
    plot.attention(weights_of(1, 1), ["a"], ["b"])
    assert pyplot.get_fignums() == before
