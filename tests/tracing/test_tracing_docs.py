"""The examples of docs/tracing.md print what the page says."""

import doctest
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tracing.md"


def test_examples():
    text = PAGE.read_text(encoding="utf-8")
    example = "\n".join(re.findall(r"^```pycon\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    case = doctest.DocTestParser().get_doctest(example, {}, PAGE.name, str(PAGE), 0)
    printed = []
    doctest.DocTestRunner(verbose=False).run(case, out=printed.append)
    assert not printed, "".join(printed)


def test_links():
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / target).exists(), target
