"""Draw the pictures of gallery.md anew, by the very lines that stand there: python docs/gallery.py"""

import re
from pathlib import Path

PAGE = Path(__file__).with_name("gallery.md")
DPI = 80


def blocks():
    """Return the code that all blocks start from, and a list of (code, path of the picture that follows it)."""
    first, *others = re.split(r"^```python\n", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]
    pairs = []
    for block in others:
        code, rest = block.split("\n```\n", 1)
        pairs.append((code, PAGE.parent / re.search(r"!\[.+\]\((.+\.png)\)", rest)[1]))
    return first.split("\n```\n", 1)[0], pairs


def draw(start, code):
    """Run one block after the lines that all start from; return its `fig`."""
    names = {}
    exec(f"{start}\n{code}", names)
    return names["fig"]


if __name__ == "__main__":
    START, PAIRS = blocks()
    for CODE, PICTURE in PAIRS:
        draw(START, CODE).savefig(PICTURE, dpi=DPI)
        print(f"{PICTURE.name}: {PICTURE.stat().st_size // 1000} kB")
