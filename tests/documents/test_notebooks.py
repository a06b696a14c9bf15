"""The notebooks run from top to bottom, and hold no outputs: the site's build makes them."""

import ast
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells_of(path, kind):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def show(value):
    """Do what a notebook does with the value of a cell: ask for the richest form that it has."""
    for name in ("_repr_html_", "_repr_svg_"):
        shown = getattr(value, name, lambda: None)()
        if shown is not None:
            return shown
    return repr(value)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs(path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    namespace = {"__name__": "__main__"}
    for cell in cells_of(path, "code"):
        program = ast.parse("".join(cell["source"]))
        last = program.body.pop() if isinstance(program.body[-1], ast.Expr) else None
        exec(compile(program, f"{path.name}:{cell['id']}", "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), path.name, "eval"), namespace)
            assert isinstance(show(value), str)
    matplotlib.pyplot.close("all")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_outputs_are_kept(path):
    for cell in cells_of(path, "code"):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
    ids = [cell["id"] for cell in json.loads(path.read_text())["cells"]]
    assert len(ids) == len(set(ids))


def test_there_are_notebooks_and_the_site_lists_each():
    listed = (FOLDER.parent / "index.md").read_text()
    assert len(NOTEBOOKS) >= 4
    assert [path.stem for path in NOTEBOOKS if f"notebooks/{path.stem}\n" not in listed] == []
