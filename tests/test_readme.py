"""The README: what it shows must run, and print what it says."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_python_examples_run_and_print_what_is_shown(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # one of them writes a page
    namespace = {}
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(compile(block, "README.md", "exec"), namespace)
    printed = capsys.readouterr().out
    shown = re.search(r"```\n(FAIL .*?)```", README, re.DOTALL).group(1)
    for line in shown.replace("...\n", "").splitlines():
        assert line in printed.splitlines()


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_commands_named_exist():
    from transformer_np.cli import COMMANDS

    commands = {module.__name__.rsplit(".", 1)[1] for module in COMMANDS}
    named = set(re.findall(r"transformer-np ([a-z]+)", README))
    assert named
    assert named <= commands
