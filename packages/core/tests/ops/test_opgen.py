"""tools/opgen.py: stubs out of the op table."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import pullback as pb
from pullback.ops import ENTRIES, Entry

TOOL = Path(__file__).parents[2] / "tools" / "opgen.py"
PACKAGE = Path(pb.__file__).parent
# Python objects that a stub need not list: modules' own names and what only the package uses.
HIDDEN = {"annotations"}

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="needs the source tree of the core")


def generate(folder, *options):
    """Run the generator in a fresh interpreter, as the build does."""
    subprocess.run([sys.executable, TOOL, *map(str, options)], check=True, cwd=folder)


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    """The folder of generated stubs."""
    folder = tmp_path_factory.mktemp("stubs")
    generate(folder, "--stubs", folder)
    return folder


@pytest.fixture(scope="module")
def package_stub(stubs):
    """The parsed stub of the package itself."""
    return ast.parse((stubs / "pullback" / "__init__.pyi").read_text())


def public_names(body):
    names = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            names.add(node.target.id)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname for alias in node.names if alias.asname}
    return {name for name in names if not name.startswith("_")}


def definitions(tree, name):
    """Return the definitions of a function or method: several if it is overloaded."""
    return [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name
    ]


def class_body(tree, name):
    (found,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    return found.body


def offered(module):
    """Return a module's public names; pytest adds some like @py_builtins to those it rewrites."""
    return {name for name in vars(module) if name.isidentifier() and not name.startswith("_")}


def test_stub_lists_the_public_names_of_the_package(package_stub):
    modules = {
        name
        for name, value in vars(pb).items()
        if inspect.ismodule(value) and value.__name__ not in sys.stdlib_module_names
    }
    actual = offered(pb) - HIDDEN
    stubbed = public_names(package_stub.body)
    # Submodules that an import elsewhere has put there are no names of the package's own.
    assert actual - stubbed - modules == set()
    # Others are imported when they are asked for.
    assert {name for name in stubbed - actual if not hasattr(pb, name)} == set()


def test_stub_lists_the_attributes_of_tensors(package_stub):
    stubbed = public_names(class_body(package_stub, "Tensor"))
    # dir() has names of torch, too, that only say why they are left out.
    actual = {name for name in dir(pb.Tensor) if name[0] != "_" and hasattr(pb.Tensor, name)}
    assert actual - stubbed == set()
    assert stubbed - actual == set()


def test_stub_lists_the_special_methods_of_tensors(package_stub):
    body = class_body(package_stub, "Tensor")
    stubbed = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    special = {name for name in stubbed if name.startswith("__")}
    if sys.version_info < (3, 12):
        special.discard("__buffer__")  # Python had no name for it before
    assert [name for name in special if not hasattr(pb.Tensor, name)] == []
    operators = {"add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"}
    assert {f"__{way}{name}__" for name in operators for way in ("", "r", "i")} <= special


@pytest.mark.parametrize("name", ["finfo", "iinfo", "Generator", "device", "dtype"])
def test_stub_lists_the_attributes_of_other_classes(package_stub, name):
    examples = {
        "finfo": pb.finfo(),
        "iinfo": pb.iinfo(pb.int8),
        "Generator": pb.Generator(),
        "device": pb.device("meta"),
        "dtype": pb.float32,
    }
    stubbed = public_names(class_body(package_stub, name))
    stubbed |= {
        node.name
        for node in class_body(package_stub, name)
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }
    assert [attribute for attribute in stubbed if not hasattr(examples[name], attribute)] == []


def test_functional_stub_lists_its_functions(stubs):
    tree = ast.parse((stubs / "pullback" / "nn" / "functional.pyi").read_text())
    assert public_names(tree.body) == offered(pb.nn.functional) - HIDDEN


def test_python_functions_have_the_stubs_arguments(package_stub):
    for node in package_stub.body:
        if not isinstance(node, ast.FunctionDef) or node.name in ENTRIES:
            continue
        value = getattr(pb, node.name)
        if inspect.isfunction(value):
            found = (
                *node.args.posonlyargs,
                *node.args.args,
                node.args.vararg,
                *node.args.kwonlyargs,
                node.args.kwarg,
            )
            expected = [argument.arg for argument in found if argument]
            assert list(inspect.signature(value).parameters) == expected, node.name


def test_signature_becomes_annotations(package_stub):
    (add,) = (
        node
        for node in package_stub.body
        if isinstance(node, ast.FunctionDef) and node.name == "add"
    )
    assert ast.unparse(add.args) == (
        "input: Tensor | _Number, other: Tensor | _Number, *, alpha: _Number=1, "
        "out: Tensor | None=None"
    )
    assert ast.get_docstring(add) == ENTRIES["add"].doc.splitlines()[0]


def test_sizes_can_be_spread(package_stub):
    first, second = (
        node
        for node in class_body(package_stub, "Tensor")
        if isinstance(node, ast.FunctionDef) and node.name == "reshape"
    )
    assert ast.unparse(first.args) == "self, *shape: _int"
    assert ast.unparse(second.args) == "self, shape: _Sizes"


def test_keywords_of_an_overload_are_another_signature(package_stub):
    first, second = definitions(package_stub, "div_")
    assert ast.unparse(first.args) == "self, other: Tensor | _Number"
    assert ast.unparse(second.args) == (
        "self, other: Tensor | _Number, *, rounding_mode: _str | None"
    )


def test_one_stub_and_the_files_it_came_from(tmp_path):
    target, depfile = tmp_path / "with space" / "functional.pyi", tmp_path / "deps.d"
    generate(tmp_path, "--stub", "pullback.nn.functional", target, "--depfile", depfile)
    assert "def softmax(" in target.read_text()
    rule, _, listed = depfile.read_text().partition(": ")
    assert rule == str(target).replace(" ", "\\ ")
    files = [Path(file).name for file in listed.split()]
    assert {"opgen.py", "softmax_linear.py", "schema.py", "samples.py"} <= set(files)


def test_table_is_read_without_compiled_code(tmp_path):
    # Neither NumPy nor the compiled modules may be needed: the build has neither yet.
    script = (
        f"import sys; sys.path.insert(0, {str(TOOL.parent)!r}); import opgen; opgen.load_table()\n"
        "print([name for name in sys.modules if name == 'numpy' or '_c' in name.split('.')])"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "options", [[], ["--depfile", "x"], ["--stub", "pullback.nowhere", "x"]], ids=str
)
def test_wrong_options_are_refused(tmp_path, options):
    done = subprocess.run([sys.executable, TOOL, *options], capture_output=True, cwd=tmp_path)
    assert done.returncode == 2
    assert b"usage:" in done.stderr


def test_entry_is_what_the_generator_reads():
    used = (
        "name arguments returns composite kernel vjp inplace out view varargs method function "
        "namespaces aliases doc signature"
    )
    assert set(used.split()) <= set(Entry._fields)


NAMED = ["svd", "eig", "eigh", "qr", "lu", "lu_factor_ex", "slogdet", "lstsq", "inv_ex"]


@pytest.mark.parametrize("name", NAMED)
def test_stub_names_the_results(name, stubs, package_stub):
    function = getattr(pb.linalg, name)
    made = function(pb.eye(2), *[pb.ones(2, 1)] * (name == "lstsq"))
    tree = ast.parse((stubs / "pullback" / "linalg.pyi").read_text())
    (stub,) = definitions(tree, name)
    body = class_body(package_stub, stub.returns.id)
    assert tuple(node.target.id for node in body) == made._fields
