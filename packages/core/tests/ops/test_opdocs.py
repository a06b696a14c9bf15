"""tools/opdocs.py: the documentation's pages on ops, out of the op table."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pullback.ops import ENTRIES

TOOL = Path(__file__).parents[2] / "tools" / "opdocs.py"
SOME = ("tanh", "mm", "acosh", "clamp", "add_", "ctc_loss", "floor_divide", "tanh_backward")
SOME += ("argmax", "cumprod", "split")

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="needs the source tree of the core")


def generate(*options):
    """Run the generator in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, TOOL, *map(str, options)], capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The pages of some ops, by name."""
    folder = tmp_path_factory.mktemp("pages")
    chosen = [name for name in SOME if name in ENTRIES]
    done = generate(folder, *(f"--op={name}" for name in chosen))
    assert done.returncode == 0, done.stderr
    return {name: (folder / "ops" / f"{name}.md").read_text() for name in chosen}


@pytest.fixture(scope="module")
def tool():
    """The generator as a module."""
    sys.path.insert(0, str(TOOL.parent))
    try:
        import opdocs
    finally:
        sys.path.remove(str(TOOL.parent))
    return opdocs


def test_pages_have_their_parts(pages):
    for name, text in pages.items():
        assert f"\n# `{name}`\n" in text
        for heading in ("Derivative", "Dtypes", "Kernels", "Source"):
            assert f"\n## {heading}\n" in text, (name, heading)


def test_formula_is_tex_where_it_is_one_expression(pages):
    assert r"g \cdot \overline{\left(1 - y\right) \cdot \left(1 + y\right)}" in pages["tanh"]
    assert r"g \, \overline{\mathit{mat2}^T}" in pages["mm"]


def test_formula_of_real_numbers_says_so(pages):
    assert "The gradient of `input`, for real numbers:" in pages["acosh"]
    assert r"\frac{1}{\sqrt{x^2 - 1}}" in pages["acosh"]


def test_other_formulas_are_code(pages):
    assert "def _clamp_self_vjp(g, self, min, max):" in pages["clamp"]


def test_orders_are_those_that_can_be_computed(pages):
    assert "Derivatives of order 1 to 3" in pages["tanh"]
    assert re.search(
        r"Orders: 1\. The next one raises an error: \*derivative for", pages["ctc_loss"]
    )
    assert "Orders: none." in pages["floor_divide"]
    assert "It has no derivative." in pages["argmax"]


def test_kinks_and_examples_are_shown(pages):
    assert "| `[1.0]` | `[inf]` |" in pages["acosh"]
    assert ">>> pullback.tanh(x)" in pages["tanh"]


def test_source_lines_hold_the_entry(pages):
    for name, text in pages.items():
        path, first, last = re.search(
            r"literalinclude\} (.+)\n.*\n.*\n:lines: (\d+)-(\d+)", text
        ).groups()
        source = TOOL.parents[1] / "src" / path[path.index("pullback/") :].split("src/")[-1]
        lines = source.read_text().splitlines()[int(first) - 1 : int(last)]
        assert name.rstrip("_") in "\n".join(lines), name


def test_index_lists_every_op_once(tool):
    entries, places = ENTRIES, {name: tool.Place("ops/shape/views.py", 1) for name in ENTRIES}
    text = "\n".join(tool.index_of(entries, places))
    listed = re.findall(r"^\| \[`([\w.]+)`\]\(ops/[\w.]+\.md\)", text, re.M)
    assert sorted(listed) == sorted(ENTRIES)
    public, _, internal = text.partition("## Building blocks")
    assert "[`add`]" in public
    assert "[`select_backward`]" in internal


def test_names_by_module_are_those_that_exist(tool):
    import pullback

    for name, entry in ENTRIES.items():
        for public in tool.names_of(entry):
            found = pullback
            for part in public.removeprefix("pullback.").split("."):
                found = getattr(found, part, None)
            assert found is not None, (name, public)


@pytest.mark.parametrize("options", [[], ["--op", "no_such_op"]], ids=str)
def test_wrong_options_are_refused(tmp_path, options):
    done = generate(*options, *([tmp_path] if options else []))
    assert done.returncode == 2
    assert "usage:" in done.stderr
