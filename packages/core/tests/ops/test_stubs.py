"""The generated stubs, read by mypy on a small example."""

import ast
import runpy
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import pullback as pb

pytest.importorskip("mypy", reason="mypy checks the stubs")

TOOL = Path(__file__).parents[2] / "tools" / "opgen.py"
pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="needs the source tree of the core")

GOOD = """
    from typing_extensions import assert_type

    import pullback as pb
    from pullback import Tensor
    from pullback.nn import functional as F

    x = pb.randn(4, 3, requires_grad=True)
    w = pb.zeros((3, 2), dtype=pb.float64, device="cpu")
    assert_type(x, Tensor)
    assert_type(x @ w + 1, Tensor)
    assert_type(2 ** x, Tensor)
    assert_type(x.sum(0, keepdim=True), Tensor)
    assert_type(x.reshape(2, 6), Tensor)
    assert_type(x.reshape((2, 6)), Tensor)
    assert_type(pb.add(x, 1, alpha=2), Tensor)
    assert_type(x.split(2), tuple[Tensor, ...])
    assert_type(x.size(), pb.Size)
    assert_type(x.size(0), int)
    assert_type(x.shape[0], int)
    assert_type(x.dtype, pb.dtype)
    assert_type(x == x, Tensor)
    assert_type(x.add_(1).mul_(2), Tensor)
    x[0, 1:] = 3.0
    x += 1
    loss = F.cross_entropy(F.relu(x @ w), pb.tensor([0, 1, 0, 1]))
    loss.backward()
    if x.grad is not None:
        assert_type(x.grad, Tensor)
    with pb.no_grad():
        x.zero_()
    for row in x:
        assert_type(row, Tensor)
    pb.testing.assert_close(x, x)
    pb.save({"x": x}, "x.pt", pickle_protocol=2)
    assert_type(x.share_memory_(), Tensor)
    assert_type(x.untyped_storage(), pb.UntypedStorage)
    assert_type(x.set_(x.untyped_storage(), 0, (2,)), Tensor)
"""

WRONG = {
    "pb.ad(x, 1)": "attr-defined",
    "pb.add(x)": "call-arg",
    "pb.add(x, 'one')": "arg-type",
    "x.sum(dim='all')": "arg-type",
    "x.mm(1)": "arg-type",
    "pb.zeros(2, dtype='float32')": "call-overload",
    "x.shape.numle()": "attr-defined",
    "x + 'one'": "operator",
    "pb.nn.Linear(3)": "call-arg",
    "pb.nn.Linear(3, 4)(1)": "arg-type",
    "pb.optim.Adam([x], lr='1')": "arg-type",
    "pb.autograd.grad(x, 1)": "call-overload",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder for typed programs; ``path`` in it holds the package with its generated stubs."""
    folder = tmp_path_factory.mktemp("typed")
    package = folder / "path" / "pullback"
    # A copy beside the stubs stands for an installed package, wherever this one runs from.
    shutil.copytree(
        Path(pb.__file__).parent,
        package,
        ignore=shutil.ignore_patterns("_c", "include", "__pycache__"),
    )
    subprocess.run([sys.executable, TOOL, "--stubs", folder / "path"], check=True)
    return folder


@pytest.fixture(scope="module")
def check(folder):
    """Return a function that runs mypy on a program and returns what it says."""

    def run(program):
        (folder / "program.py").write_text(program)
        options = ["--strict", "--follow-imports=silent", "--no-error-summary", "--config-file="]
        done = subprocess.run(
            [sys.executable, "-m", "mypy", *options, "program.py"],
            capture_output=True,
            text=True,
            cwd=folder,
            env={"MYPYPATH": str(folder / "path"), "PATH": ""},
        )
        return done.stdout + done.stderr

    return run


def test_good_program_passes(check):
    assert check(textwrap.dedent(GOOD)) == ""


def test_training_script_passes_and_runs(check, tmp_path):
    program = Path(__file__).with_name("typed_program.py")
    assert check(program.read_text()) == ""
    subprocess.run([sys.executable, program], cwd=tmp_path, check=True, timeout=100)


def test_stubs_of_classes_are_those_of_their_signatures():
    tool = TOOL.with_name("classstubs.py")
    made = runpy.run_path(str(tool))
    for module in made["MODULES"]:
        text = made["path_of"](module).read_text()
        assert made["make_stub"](module) == text, f"run python {tool}"


def test_wrong_lines_are_found(check):
    lines = ["import pullback as pb", "x = pb.ones(2)", *WRONG]
    said = check("\n".join(lines) + "\n").splitlines()
    errors = {int(line.split(":")[1]): line for line in said if ": error:" in line}
    assert sorted(errors) == list(range(3, 3 + len(WRONG)))
    for number, kind in enumerate(WRONG.values(), 3):
        assert errors[number].endswith(f"[{kind}]"), errors[number]


def test_stubs_themselves_are_consistent(check):
    assert check("import pullback\nimport pullback.nn.functional\n") == ""


def test_stub_has_every_public_name(folder):
    """Modules that are imported on first use too: type checkers do not run ``__getattr__``."""
    command = [sys.executable, "-c", "import pullback; print(*dir(pullback))"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    names = set()
    for node in ast.parse((folder / "path" / "pullback" / "__init__.pyi").read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    assert [name for name in shown if name[0] != "_" and name not in names] == []
    assert {"tensor", "nn", "linalg"} <= names


def test_package_is_marked_as_typed():
    assert (Path(pb.__file__).parent / "py.typed").exists()
