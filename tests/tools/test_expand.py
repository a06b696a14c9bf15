"""``nox -s expand``: templates are found by their name and become readable sources."""

import importlib.util
import re
import subprocess
import sys

import pytest

TEMPLATES = "packages/backend-cpu/src/pullback_cpu"


@pytest.fixture(scope="module")
def tool(root):
    """The module tools/expand.py, with the folders of tools it needs on the path."""
    pytest.importorskip("Cython")
    spec = importlib.util.spec_from_file_location("expand_tool", root / "tools/expand.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path[:0] = folders = [str(folder) for folder in module.TOOLS]
    yield module
    for folder in folders:
        sys.path.remove(folder)


@pytest.fixture(scope="module")
def modules(tool):
    """Every kernel template of the CPU backend, rendered."""
    return {name: tool.expand_cpu(name) for name in tool.PACKAGES["cpu"].names()}


def run(root, *arguments):
    command = [sys.executable, str(root / "tools/expand.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_every_template_has_a_name(root, modules):
    files = (root / TEMPLATES).rglob("*.pyx.in")
    assert sorted(modules) == sorted(
        str(path.relative_to(root / TEMPLATES)).removesuffix(".pyx.in") for path in files
    )


@pytest.mark.parametrize("name", ["reduce", "reductions/reduce", "kernels/reductions/reduce"])
def test_name_is_the_end_of_a_path(root, modules, name):
    result = run(root, name)
    assert result.returncode == 0, result.stderr
    assert result.stdout == modules["kernels/reductions/reduce"]


def test_output_goes_into_a_file(root, tmp_path, modules):
    result = run(root, "cpu", "where", "--output", str(tmp_path / "where.pyx"))
    assert (result.returncode, result.stdout) == (0, "")
    assert (tmp_path / "where.pyx").read_text() == modules["kernels/elementwise/where"]


def test_unknown_name_lists_the_known_ones(root, modules):
    result = run(root, "nosuch")
    assert result.returncode == 2
    assert all(name in result.stderr for name in modules)


def test_ambiguous_name_lists_the_matches(tool):
    with pytest.raises(ValueError, match=r"several.*'b':\n  a/b\n  c/b$"):
        tool.find_name("b", ["a/b", "c/b", "c/d"])


def test_cuda_source_has_its_headers_in_place(root, modules):
    result = run(root, "cuda", "reduce")
    assert result.returncode == 0, result.stderr
    assert "// ---- kernels/common/reduction_driver.cuh" in result.stdout
    included = re.findall(r'#\s*include "(.+)"', result.stdout)
    assert set(included) <= {"emulation.h"}  # only the emulation of the tests has it


def test_core_stub_has_the_ops(root, modules):
    result = run(root, "core", "linalg")
    assert result.returncode == 0, result.stderr
    assert "def inv(" in result.stdout


def test_rendered_modules_can_be_read(modules):
    for name, text in modules.items():
        assert "\n\n\n\n" not in text, f"{name} has storms of empty lines"
        assert not re.search(r"[ \t]$", text, re.M), f"{name} has spaces at the end of a line"
        assert not re.search(r"\{\{|\}\}", text), f"{name} has an unrendered part"


def test_section_of_a_dtype_says_which(root, modules):
    """A function rendered for one element type stands below a header that names the type."""
    types = "bool|[ui]8|[iuf]16|bf16|[iuf]32|[iuf]64|c64|c128"
    written = "".join(path.read_text() for path in (root / TEMPLATES).rglob("*.in"))
    seen = 0
    for name, text in modules.items():
        header = ""
        for line in text.splitlines():
            header = line if line.startswith("# -- ") else header
            found = re.match(rf"cdef [^(]*?\b(\w+_({types}))\(", line)
            if found and f"{found[1]}(" not in written:
                seen += 1
                assert re.search(rf"\b{found[2]}\b", header), f"{name}: {found[1]} below {header!r}"
    assert seen > 1000
