"""The derivations in docs/ are held to the code: quotes are equal to the source, examples run, links lead somewhere."""

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

import transformer_np as tnp
from transformer_np.checking import gradcheck

ROOT = Path(__file__).resolve().parents[1]
DERIVATIONS = sorted((ROOT / "docs" / "derivations").glob("*.md"))
PAGES = [*DERIVATIONS, ROOT / "docs" / "design.md"]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

by_name = pytest.mark.parametrize("page", DERIVATIONS, ids=lambda page: page.stem)
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def fenced(text, language):
    """Yield (where it starts, content) of each fenced block of that language."""
    return [(match.start(), match[2]) for match in FENCE.finditer(text) if match[1] == language]


def last_source_before(page, text, start):
    """The Python file that the page linked to most recently."""
    sources = [target for target in LINK.findall(text[:start]) if target.endswith(".py")]
    assert sources, f"{page.name}: code is quoted before any source file is named"
    return page.parent / sources[-1]


def is_quoted_from(quote, source):
    """Say whether the lines of `quote` stand in `source` one after another, indented as a whole or not."""
    wanted, lines = quote.rstrip("\n").split("\n"), source.split("\n")
    return any(
        textwrap.dedent("\n".join(lines[i : i + len(wanted)])).split("\n") == wanted
        for i in range(len(lines) - len(wanted) + 1)
    )


@every_page
def test_quoted_code_is_the_source(page):
    text = page.read_text(encoding="utf-8")
    for start, quote in fenced(text, "python"):
        source = last_source_before(page, text, start)
        found = is_quoted_from(quote, source.read_text(encoding="utf-8"))
        assert found, f"{page.name} misquotes {source.name}:\n{quote}"


def test_every_derivation_but_the_index_quotes_code():
    for page in DERIVATIONS:
        assert page.stem == "README" or fenced(page.read_text(encoding="utf-8"), "python"), page.name


def test_a_changed_quote_is_noticed():
    source = "def f(x):\n    y = x + 1\n    return y\n"
    assert is_quoted_from("y = x + 1\nreturn y\n", source)
    assert not is_quoted_from("y = x + 2\n", source)
    assert not is_quoted_from("def f(x):\n    return y\n", source)  # a line is missing in between
    assert not is_quoted_from("y = x\n", source)  # half a line is no quote


@every_page
def test_examples_print_what_the_page_says(page, monkeypatch):
    monkeypatch.setattr(tnp, "gradcheck", gradcheck, raising=False)
    text = page.read_text(encoding="utf-8")
    example = "\n".join(content for _, content in fenced(text, "pycon"))
    assert example.count(">>>") or page.name == "design.md", f"{page.name} has no example"
    case = doctest.DocTestParser().get_doctest(example, {}, page.name, str(page), 0)
    printed = []
    with np.printoptions():  # the pages set their own; put them back afterwards
        doctest.DocTestRunner(verbose=False).run(case, out=printed.append)
    assert not printed, "".join(printed)


@every_page
def test_links_lead_somewhere(page):
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if not target.startswith(("https://", "http://", "#")):
            assert (page.parent / target.split("#")[0]).exists(), f"{page.name} links to {target}, which is not there"


def test_the_index_links_to_every_page():
    index = ROOT / "docs" / "derivations" / "README.md"
    linked = set(LINK.findall(index.read_text(encoding="utf-8")))
    assert {page.name for page in DERIVATIONS} - {"README.md"} <= linked


def documented_objects():
    """Yield (name, docstring) of every class and function of the package's own modules."""
    for info in pkgutil.walk_packages(tnp.__path__, "transformer_np."):
        if not info.name.startswith(("transformer_np.layers", "transformer_np.models", "transformer_np.optim")):
            continue
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if getattr(value, "__module__", None) == info.name and callable(value):
                yield f"{info.name}.{name}", inspect.getdoc(value) or ""
    yield "transformer_np.losses.CrossEntropy", inspect.getdoc(tnp.CrossEntropy)


def test_docstrings_link_to_derivations_that_exist():
    found = 0
    for name, doc in documented_objects():
        for target in re.findall(r"docs/[\w./-]+\.md", " ".join(doc.split())):
            found += 1
            assert (ROOT / target).is_file(), f"{name} links to {target}, which is not there"
    assert found >= 12  # else this test has stopped looking


@every_page
def test_formulas_survive_github(page):
    """Markdown eats a backslash before punctuation, and GitHub's MathJax refuses some macros."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"`[^`\n]*`", "", text)  # inline code
    assert text.count("$") % 2 == 0, f"{page.name}: a $ is left open"
    for display, inline in re.findall(r"\$\$(.+?)\$\$|\$([^$]+?)\$", text, re.DOTALL):
        formula = display or inline
        assert not re.search(r"\\[^a-zA-Z ]|\\operatorname|[<>]|\S\*|\*\S", formula), f"{page.name}: {formula}"
        assert formula.count("{") == formula.count("}"), f"{page.name}: {formula}"
        assert "\n\n" not in formula, f"{page.name}: a formula runs over a paragraph: {formula}"


def room_of(path):
    """The first folder or file below the package: the room that `path` lies in."""
    return path.relative_to(ROOT / "transformer_np").parts[0].removesuffix(".py")


def imported_rooms(path):
    """Which other rooms of the package the file imports from, anywhere in it."""
    folder = path.relative_to(ROOT).parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = folder[: len(folder) - node.level + 1]
            tails = [node.module.split(".")] if node.module else [[alias.name] for alias in node.names]
            found |= {(*base, *tail)[1] for tail in tails}
    return found - {room_of(path)}


def test_rooms_import_what_the_design_allows():
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", text, re.MULTILINE)
    allowed, above = {}, set()
    for room, imports in rows:
        allowed[room] = set(above) if "anything above" in imports else set(re.findall(r"`(\w+)`", imports))
        assert allowed[room] <= above, f"design.md: {room} may only import rooms above it"
        above.add(room)
    for path in sorted((ROOT / "transformer_np").rglob("*.py")):
        room = room_of(path)
        if room == "__init__":
            continue
        assert room in allowed, f"docs/design.md does not say what {room} may import: add a row to its table"
        too_much = imported_rooms(path) - allowed[room]
        assert not too_much, f"{path.relative_to(ROOT)} imports {too_much}, which docs/design.md does not allow"
