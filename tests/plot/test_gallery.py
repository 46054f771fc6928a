"""The gallery: its lines run, and every public picture is in it."""

import re
import runpy
import struct
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from transformer_np import plot

GALLERY = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "gallery.py"))
START, BLOCKS = GALLERY["blocks"]()


@pytest.mark.parametrize(("code", "picture"), [pytest.param(*b, id=b[1].stem) for b in BLOCKS])
def test_the_lines_draw_the_picture_beside_them(code, picture):
    fig = GALLERY["draw"](START, code)
    assert isinstance(fig, Figure)
    png = picture.read_bytes()
    assert len(png) < 60_000
    size = struct.unpack(">II", png[16:24])  # of the PNG header
    assert size == tuple(int(n * GALLERY["DPI"] + 1e-9) for n in fig.get_size_inches())  # so it is that figure's


def test_every_public_picture_has_its_place():
    text = GALLERY["PAGE"].read_text(encoding="utf-8")
    assert sorted(re.findall(r"^## (\w+)$", text, flags=re.M)) == sorted(plot.__all__)
    for name in plot.__all__:
        assert any(f"tnp.plot.{name}(" in code for code, _ in BLOCKS)


def test_no_picture_is_left_over():
    docs = GALLERY["PAGE"].parent
    pages = "".join(page.read_text(encoding="utf-8") for page in docs.glob("*.md"))
    there = {picture.name for picture in docs.glob("pictures/*.png")}
    assert there == set(re.findall(r"\(pictures/(.+?\.png)\)", pages))
    assert {picture.name for _, picture in BLOCKS} <= there
