"""An op is its entry: few other files say anything about it by name.

A file names an op where the op's name is a string of its code: a key, an item of a list, a value
that is compared. What only calls or uses an op does not count: the argument of a look-up, the
``kernel`` of another entry, an attribute of ``ops``; nor do signatures, comments and docstrings. A
template that another one includes belongs to that.
"""

import ast
import re
from collections import defaultdict

import pytest

from pullback.ops import ENTRIES
from pullback.ops.table.primitives import PRIMITIVES

SUFFIXES = (".py", ".pyx", ".pxd", ".in", ".cu", ".cuh", ".h")
BACKENDS = (
    "packages/core/src/pullback/refbackend",
    "packages/backend-cpu",
    "packages/backend-cuda",
)
# The entry, the list of primitives, the decomposition; and one file of each backend.
MOST_OF_A_PRIMITIVE = 3 + len(BACKENDS)
MOST_OF_A_COMPOSITION = 1
# Functions that find an op, a primitive or a forward pass by its name, to call it.
LOOKUPS = {
    *("op_named", "primitive_id", "forward_register", "forward_named", "run_primitive"),
    *("find_step", "run_along", "reduce_by", "scatter_into", "getattr", "require", "compiled"),
    *("references_of", "_random", "layout_parse", "dtype_code"),
}
# Names of ops that are words of other lists, too, where a string says nothing of the op.
WORDS = {
    **dict.fromkeys(("all", "any", "bool", "max", "mean", "min", "prod", "sum"), "a reduction"),
    **dict.fromkeys(("add", "amax", "amin"), "values of `reduce`"),
    **dict.fromkeys(("bilinear", "linear", "real", "view", "where", "matmul"), "values of fields"),
    **dict.fromkeys(
        (
            "contiguous",
            "dropout",
            "matrix_exp",
            "norm",
            "pad",
            "pin_memory",
            "std",
            "threshold",
            "zeros",
        ),
        "values of arguments",
    ),
    "pin_memory": "an argument, and a method of batches",
    **dict.fromkeys(("index", "copy", "to", "full", "gradient", "imag", "convolution"), "words"),
    "diff": "a command of the profiler",
    "lstm": "a module of kernels",
    "tensordot": "a function of opt_einsum",
}
LEFT_OUT = (
    "packages/core/src/pullback/testing/interrupts.py",  # labels of workloads
    "packages/core/src/pullback/backend/array_library.py",  # a backend of its own
    "packages/core/src/pullback/utils/_foreach.py",  # a function of lists for each
    "packages/core/src/pullback/_help/left_out_members.py",  # names of torch: solve
    "packages/core/src/pullback/_help/arguments.py",  # names of arguments: abs, mean, median
    "packages/core/src/pullback/nn/init.py",  # nonlinearities, which are arguments
    "packages/distributed/",  # collectives, of which some have names of ops
    "packages/core/src/pullback/distributed/",  # the same
    "packages/core/src/pullback/backend/doctor/conformance.py",  # the doctor's sample of ops
    "packages/core/src/pullback/autograd/diagnostics/batch_rules.py",  # per-sample gradients
    "packages/core/tools/opformulas.py",  # how products and quotients are written in TeX
    "packages/core/src/pullback/array_api/",  # the array API standard's list of its functions
)


def names_in_python(text):
    """Return the strings of a Python file that are one word, but those given to look-ups."""
    tree = ast.parse(text)
    aside = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            aside.add(id(node.value))
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            called = called.id if isinstance(called, ast.Name) else called
            if called in LOOKUPS:
                aside.update(map(id, node.args))
            aside.update(id(word.value) for word in node.keywords if word.arg == "kernel")
    strings = (
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in aside
    )
    return {string for string in strings if string.isidentifier()}


CALL = re.compile(rf"\b(?:{'|'.join(LOOKUPS)})\([^\"\n]*\s*\"\w+\"")
DOCSTRING = re.compile(r'"""[\s\S]*?"""')
COMMENT = {True: re.compile(r"#.*"), False: re.compile(r"/\*[\s\S]*?\*/|//.*|#error.*")}


def names_in_compiled(text, is_cython):
    """As names_in_python, for Cython, its templates, C and CUDA."""
    text = COMMENT[is_cython].sub("", DOCSTRING.sub("", text))
    return set(re.findall(r"(?<![\w\]])[\"'](\w+)[\"']", CALL.sub("", text)))


@pytest.fixture(scope="module")
def files_naming(root):
    """By name, the source files of the packages that name it."""
    found = defaultdict(set)
    for path in (root / "packages").glob("*/src/**/*"):
        where = path.relative_to(root).as_posix()
        included = path.suffix == ".in" and not path.name.endswith(".pyx.in")
        if path.suffix not in SUFFIXES or included or where.startswith(LEFT_OUT):
            continue
        text = path.read_text()
        if path.suffix == ".py":
            names = names_in_python(text)
        else:
            names = names_in_compiled(text, path.suffix in (".pyx", ".pxd", ".in"))
        for name in names:
            found[name].add(where)
    return found


@pytest.mark.parametrize("name", sorted(PRIMITIVES.keys() - WORDS.keys()))
def test_few_files_name_a_primitive(name, files_naming):
    assert len(files_naming[name]) <= MOST_OF_A_PRIMITIVE, sorted(files_naming[name])


COMPOSITIONS = {
    entry.name for entry in ENTRIES.values() if entry.composite is not None and entry.kernel is None
}


@pytest.mark.parametrize("name", sorted(COMPOSITIONS - PRIMITIVES.keys() - WORDS.keys()))
def test_only_its_entry_names_a_composition(name, files_naming):
    assert len(files_naming[name]) <= MOST_OF_A_COMPOSITION, sorted(files_naming[name])


def test_what_counts():
    text = '''
        """abs"""
        op_named("exp")  # "log"
        x = {"sin": ops.cos}
    '''
    assert names_in_compiled(text, True) == {"sin"}
    assert names_in_python("'abs'\nop_named('exp')\nx = {'sin': ops.cos}") == {"sin"}
