"""The table of positions in the authors' own code: sines first, cosines after, and a first position of choice."""

import math

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.layers.positions import sinusoids, sinusoids_in_halves


def test_a_row_worked_out_by_hand():
    # D = 4: two frequencies, 10000^0 and 10000^(-1/1).
    expected = [math.sin(3), math.sin(3e-4), math.cos(3), math.cos(3e-4)]
    np.testing.assert_allclose(sinusoids_in_halves(1, 4, offset=3)[0], expected, rtol=0, atol=1e-15)


def test_the_lowest_frequency_is_exactly_one_in_ten_thousand():
    table = sinusoids_in_halves(2, 32)
    np.testing.assert_allclose(table[1, 15], math.sin(1e-4), rtol=1e-12)
    np.testing.assert_allclose(sinusoids(2, 32)[1, 30], math.sin(10000 ** (-30 / 32)), rtol=1e-12)  # the paper's


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_first_moves_the_table_and_offset_counts_from_it(layout):
    x = np.zeros((1, 3, 8))
    from_zero = tnp.layers.SinusoidalPositions(8, layout=layout, dtype="float64")
    from_one = tnp.layers.SinusoidalPositions(8, layout=layout, first=1, dtype="float64")
    np.testing.assert_array_equal(from_one(x), from_zero(x, offset=1))
    np.testing.assert_array_equal(from_one(x, offset=4), from_zero(x, offset=5))


def test_max_len_counts_rows_wherever_they_start():
    layer = tnp.layers.SinusoidalPositions(8, max_len=3, first=1)
    layer(np.zeros((1, 3, 8), "float32"))
    with pytest.raises(ValueError, match="passes max_len 3"):
        layer(np.zeros((1, 4, 8), "float32"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "half"}, "layout must be one of"),
        ({"first": -1}, "first must be"),
        ({"first": 1.0}, "first must be"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        tnp.layers.SinusoidalPositions(8, **options)


@pytest.mark.parametrize("d_model", [2, 7])
def test_halves_need_an_even_width_with_two_frequencies(d_model):
    with pytest.raises(ValueError, match=f"even d_model of at least 4, got {d_model}"):
        tnp.layers.SinusoidalPositions(d_model, layout="halves")


def test_a_model_keeps_its_layout_on_disk(tmp_path):
    options = {"d_model": 8, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1, "d_ff": 8}
    model = tnp.Transformer(7, 9, **options, position_layout="halves", first_position=1, dtype="float64").eval()
    model.save(tmp_path / "m.safetensors")
    src, tgt = np.array([[3, 4, 5]]), np.array([[1, 6]])
    np.testing.assert_array_equal(tnp.load(tmp_path / "m.safetensors").eval()(src, tgt), model(src, tgt))
    paper = tnp.Transformer(7, 9, **options, dtype="float64").load_state_dict(model.state_dict()).eval()
    assert np.abs(paper(src, tgt) - model(src, tgt)).max() > 1e-3
