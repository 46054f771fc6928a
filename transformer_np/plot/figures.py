"""Figures, colours and fonts: what every picture needs."""

# The colours of Okabe and Ito (2008), which the colour-blind can tell apart; each curve has a marker of its own too,
# for those who print in grey.
STYLES = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#E69F00", "v"), ("#56B4E9", "P"))


def figure(n_columns=1, n_rows=1, size=(4.0, 3.0)):
    """Return a new Figure, which nothing global knows of, and its axes (n_rows, n_columns), `size` inches each."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(size[0] * n_columns, size[1] * n_rows), layout="constrained")
    return fig, fig.subplots(n_rows, n_columns, squeeze=False)


def one_axes(ax=None, size=(4.0, 3.0)):
    """Return `ax` itself, or the Axes of a new Figure of that size in inches."""
    return figure(size=size)[1][0, 0] if ax is None else ax


def families_for(texts):
    """Return the font families to write these texts with, best first, and the characters that no installed font has.

    Matplotlib's own font comes first; for characters it lacks, the installed fonts are searched for one that has the
    most. Matplotlib remembers which there are: where those it knows do not do, it is told of fonts installed since.
    """
    from matplotlib import font_manager

    families, missing = ["DejaVu Sans"], set("".join(texts)) - _covered(font_manager.findfont("DejaVu Sans"))
    missing = {c for c in missing if c.isprintable() and not c.isspace()}
    if not missing:
        return families, missing
    found, missing = _search(font_manager.fontManager.ttflist, missing)
    if missing:
        n_known = len(font_manager.fontManager.ttflist)
        _add_new_fonts(font_manager)
        more, missing = _search(font_manager.fontManager.ttflist[n_known:], missing)
        found += more
    return families + found, missing


def _search(fonts, missing):
    """Return the families that have these characters, the one with the most first, and the characters that none has."""
    best, families = {}, []
    for font in fonts:
        if font.name in best or font.name.startswith("Last Resort"):  # that one has a box for every character there is
            continue
        if font.style == "normal" and font.weight in (400, "normal", "regular", "book"):
            best[font.name] = missing & _covered(font.fname)
    while missing and best:
        name = max(best, key=lambda n: len(best[n] & missing))
        if not best[name] & missing:
            break
        families.append(name)
        missing = missing - best.pop(name)
    return families, missing


def _add_new_fonts(font_manager):
    """Tell matplotlib of the fonts of this machine that its list does not have yet."""
    known = {font.fname for font in font_manager.fontManager.ttflist}
    for path in sorted(set(font_manager.findSystemFonts()) - known):
        try:
            font_manager.fontManager.addfont(path)
        except (OSError, RuntimeError):  # not a font that matplotlib can read
            continue


def _covered(path):
    """The characters a font file can draw; none where the file cannot be read."""
    from matplotlib.ft2font import FT2Font

    try:
        return set(map(chr, FT2Font(path).get_charmap()))
    except (OSError, RuntimeError):  # a broken font on someone's machine is no reason to draw nothing
        return set()


def drawable(text, missing):
    """Replace the characters that cannot be drawn by their code points, such as U+B144."""
    return "".join(f"U+{ord(c):04X}" if c in missing else c for c in text)
