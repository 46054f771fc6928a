"""Notebooks as the tests see them: their exercises, what they printed, and a run from top to bottom, twice."""

import copy
import os
import re
from collections import namedtuple
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?(?![\w])", re.IGNORECASE)
RTOL = 1e-3  # far above what another processor's rounding does to a number, far below what a changed result would
ATOL = 1e-6  # below lies rounding noise, such as "5.6e-17" where 0 is meant: no two machines agree on it

MEASURED = re.compile(r"\s*(measured:|seed \d+, \d+ forwards, .* s\b)")  # the second is the last line of a gradcheck
SOLUTION = re.compile(r"^<details>\s*<summary>Solution</summary>\n\s*\n(.*)</details>\s*$", re.DOTALL)
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RIGHT = re.compile(r"^(right|PASS)\b")
NOT_YET = re.compile(r"^(not yet|not answered yet|FAIL|KINK|NONDETERMINISTIC|VACUOUS|NONFINITE|SHAPE|MUTATED|ERROR)\b")

Exercise = namedtuple("Exercise", "text stub checker solution")  # places of the cells, and the solution's code


def exercises(notebook):
    """The exercises: each a text, a stub, a checker and a folded solution, four cells in a row."""
    found = []
    for i, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown" and "<summary>Solution</summary>" in cell.source:
            where = f"solution in cell {i + 1}"
            folded = SOLUTION.match(cell.source)
            assert folded, f"{where}: must be just <details><summary>Solution</summary>, an empty line, ..., </details>"
            code = "".join(CODE.findall(folded[1]))
            assert code, f"{where}: has no ```python block"
            kinds = [c.cell_type for c in notebook.cells[i - 3 : i]]
            assert kinds == ["markdown", "code", "code"], f"{where}: must follow text, stub and checker, not {kinds}"
            found.append(Exercise(i - 3, i - 2, i - 1, code))
    return found


def passes(text):
    """Whether a checker that printed `text` is content: something is right, and nothing is not."""
    lines = [line.strip() for line in text.splitlines()]
    return any(map(RIGHT.match, lines)) and not any(map(NOT_YET.match, lines))


def printed(outputs):
    """All that a cell printed, and the text of what it returned."""
    return "\n".join(
        output.text if output.output_type == "stream" else output.get("data", {}).get("text/plain", "")
        for output in outputs
    )


def seen(outputs):
    """What counts when outputs are compared, in order: (kind, text).

    Printed pieces are joined, as they arrive in no fixed portions. Of pictures, pages and widgets only the kind counts.
    """
    pieces = []
    for output in outputs:
        if output.output_type == "stream":
            if pieces and pieces[-1][0] == output.name:
                pieces[-1] = (output.name, pieces[-1][1] + output.text)
            else:
                pieces.append((output.name, output.text))
        else:
            kinds = " ".join(sorted(output.data))
            pieces.append((kinds, output.data["text/plain"] if kinds == "text/plain" else ""))
    return pieces


def text_difference(now, stored):
    """Return "" where two texts agree, numbers to RTOL and ATOL, spacing apart; else the first lines that do not.

    A measured line must be there, and may say anything.
    """
    now, stored = now.rstrip().splitlines(), stored.rstrip().splitlines()
    if len(now) != len(stored):
        return f"{len(now)} lines, stored are {len(stored)}:\n" + "\n".join(now[:20])
    for a, b in zip(now, stored, strict=True):
        both_measured = MEASURED.match(a) and MEASURED.match(b)
        if not both_measured and not (_words(a) == _words(b) and _numbers_agree(a, b)):
            return f"now:    {a}\nstored: {b}"
    return ""


def _words(line):
    return "".join(NUMBER.sub("#", line).split())


def _numbers_agree(a, b):
    pairs = zip(map(float, NUMBER.findall(a)), map(float, NUMBER.findall(b)), strict=True)
    return all(abs(x - y) <= RTOL * max(abs(x), abs(y)) + ATOL for x, y in pairs)


def difference(now, stored):
    """Return "" where the outputs of a cell agree with the stored ones, else what does not."""
    now, stored = seen(now), seen(stored)
    if [kind for kind, _ in now] != [kind for kind, _ in stored]:
        return f"outputs {[kind for kind, _ in now]}, stored are {[kind for kind, _ in stored]}"
    return "\n".join(filter(None, (text_difference(a, b) for (_, a), (_, b) in zip(now, stored, strict=True))))


class Run:
    """One kernel, in which code is run cell by cell."""

    def __init__(self, client):
        self.client = client

    def __call__(self, source):
        """Run code; return its outputs. Raises nbclient's CellExecutionError where it fails."""
        from nbformat.v4 import new_code_cell

        nb = self.client.nb
        nb.cells.append(new_code_cell(source))
        return self.client.execute_cell(nb.cells[-1], len(nb.cells) - 1).outputs


@contextmanager
def fresh_kernel(notebook, home):
    """Start a kernel beside the notebooks, on one BLAS thread; `home` is a folder for what it leaves on disk."""
    from nbclient import NotebookClient

    notebook = copy.deepcopy(notebook)
    notebook.cells = []
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(ROOT / "notebooks")}})
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL", "VECLIB_MAXIMUM")}
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    environment = {**os.environ, **threads, **paths, "IPYTHONDIR": str(home)}
    environment.pop("MPLBACKEND", None)  # it would keep pictures from being shown in the notebook
    with client.setup_kernel(env=environment):
        yield Run(client)


def run_twice(notebook, home):
    """Run all cells, then all once more in the same kernel; the first time also each solution in the stub's place.

    Returns what is wrong: cells whose outputs differ from the stored ones, stubs that pass, solutions that do not.
    """
    solutions = {exercise.checker: exercise for exercise in exercises(notebook)}
    wrong = []

    def run(i, when):
        cell = notebook.cells[i]
        outputs = kernel(cell.source)
        differs = difference(outputs, cell.outputs)
        if differs:
            wrong.append(f"cell {i + 1}, {when}: {differs}")
        return outputs

    with fresh_kernel(notebook, home) as kernel:
        for when in ("first time", "second time"):
            for i, cell in enumerate(notebook.cells):
                if cell.cell_type != "code":
                    continue
                outputs = run(i, when)
                if i not in solutions or when == "second time":
                    continue
                if passes(printed(outputs)):
                    wrong.append(f"cell {i + 1}: the stub passes: {printed(outputs)}")
                kernel(solutions[i].solution)
                said = printed(kernel(cell.source))
                if not passes(said):
                    wrong.append(f"cell {i + 1}: the solution does not pass: {said}")
                run(solutions[i].stub, "put back")
    return wrong
