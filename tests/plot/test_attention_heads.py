"""All heads of all layers, read back from the figure."""

import numpy as np
import pytest
from matplotlib.figure import Figure

import transformer_np as tnp
from transformer_np import plot

QUERIES, KEYS = ["2", "0", "é", " 1", "<eos>"], ["May", " 3", ",", " 2", "0", "2", "6"]


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


@pytest.fixture
def model():
    model = tnp.Transformer(9, 9, d_model=8, n_heads=2, n_encoder_layers=1, n_decoder_layers=3, d_ff=8, dropout=0.0)
    model(np.arange(1, 8)[None].repeat(2, 0), np.array([[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]]))
    return model


def test_a_row_for_each_layer_and_a_column_for_each_head(model):
    fig = plot.attention_heads(model, QUERIES, KEYS, which="cross_attention", sentence=1, title="a title")
    assert len(fig.axes) == 3 * 2
    for i, layer in enumerate(model.decoder.layers):
        for j in range(2):
            (image,) = fig.axes[2 * i + j].get_images()
            np.testing.assert_array_equal(image.get_array(), layer.cross_attention.weights[1, j])
            assert image.get_extent() == [-0.5, 6.5, 4.5, -0.5]
            assert image.get_clim() == (0, 1)
        assert labels(fig.axes[2 * i].yaxis) == ["2", "0", "é", "1", "<eos>"]
        assert labels(fig.axes[2 * i + 1].yaxis) == []
        assert fig.axes[2 * i].get_ylabel() == f"decoder\nlayers.{i}\ncross_attention"
    assert [ax.get_title() for ax in fig.axes] == ["head 1", "head 2", "", "", "", ""]
    assert labels(fig.axes[4].xaxis) == labels(fig.axes[5].xaxis) == [t.strip() for t in KEYS]
    assert labels(fig.axes[0].xaxis) == []
    assert fig.get_suptitle() == "a title"


def test_each_attention_once_and_by_its_name(model):
    fig = plot.attention_heads(model, QUERIES, QUERIES, which="decoder.layers.1.self")
    assert [ax.get_ylabel() for ax in fig.axes] == ["decoder\nlayers.1\nself_attention", ""]


def test_a_list_of_weights_and_axes_of_ones_own():
    weights = [np.full((2, 5, 7), 1 / 7), np.full((2, 5, 7), 0.1)]
    fig = Figure()
    grid = fig.subplots(2, 2)
    assert plot.attention_heads(weights, QUERIES, KEYS, ax=grid) is fig
    np.testing.assert_array_equal(grid[1, 0].get_images()[0].get_array(), weights[1][0])
    assert grid[1, 0].get_ylabel() == "layer 2"
    with pytest.raises(ValueError, match=r"needs axes of shape \(2, 2\), got \(\)"):
        plot.attention_heads(weights, QUERIES, KEYS, ax=fig.axes[0])


def test_letters_that_no_font_has(monkeypatch):
    from matplotlib import font_manager

    dejavu = [font for font in font_manager.fontManager.ttflist if font.name.startswith("DejaVu")]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", dejavu)
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    fig = plot.attention_heads([np.ones((1, 1, 1))], ["년"], ["x"])
    assert labels(fig.axes[0].yaxis) == ["U+B144"]
    assert "code points stand for letters that no installed font has" in fig.get_suptitle()


def test_errors(model):
    with pytest.raises(ValueError, match="no attention weights in Transformer under 'nowhere': run forward"):
        plot.attention_heads(model, QUERIES, KEYS, which="nowhere")
    with pytest.raises(ValueError, match=r"expected \(H, 5, 7\) .* got \(2, 7, 7\) in encoder.layers.0.self_attention"):
        plot.attention_heads(model, QUERIES, KEYS)
    with pytest.raises(TypeError, match="expected a model or a list of weights, got int 3"):
        plot.attention_heads(3, QUERIES, KEYS)
    with tnp.inference():
        model(np.array([[1, 2]]), np.array([[1, 2]]))
    with pytest.raises(ValueError, match="run forward"):
        plot.attention_heads(model, ["a", "b"], ["a", "b"])
