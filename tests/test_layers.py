"""Imports run downhill, between the folders of each package and from one package to another.

Backends and the profiler use ``pullback.abi`` and ``pullback.backend`` and nothing else.
"""

import ast
import graphlib
import re
import sys

import pytest

CORE = "packages/core/src/pullback"

# Which folders of a package each folder may import, in functions and for annotations too; "." is
# the package's own modules and "pullback" the core. A folder in a folder counts as part of it
# unless it is named here.
BELOW_OPS = ("_c/base", "_c/device", "_c/graph")
ALLOWED = {
    "packages/core/src/pullback": {
        "_c/base": set(),
        "_c/device": {"_c/base", "ops/table"},
        "_c/graph": {"_c/base", "_c/device", "_help"},
        "_c/dispatch": {"_c/base", "_c/device", "_c/graph", "ops/table", "ops/rules"},
        "_c/ops": {*BELOW_OPS, "_c/dispatch", "ops/table", "ops/rules"},
        "_c/engine": {*BELOW_OPS, "_c/dispatch", "_c/ops"},
        "_c/transforms": {*BELOW_OPS, "_c/dispatch", "_c/engine", "ops/table", "."},
        "_c/interop": {*BELOW_OPS, "_c/dispatch", "_c/ops"},
        "_c/python": {
            *(*BELOW_OPS, "_c/dispatch", "_c/ops", "_c/engine", "_c/transforms"),
            *("_help", "ops/table", "."),
        },
        "_c/program": {*BELOW_OPS, "_c/dispatch", "ops/table"},
        "_c/capture": {*BELOW_OPS, "_c/program", "ops/table"},
        # Of compiled code, the op library imports what its functions need when they run.
        "ops/table": set(),
        "ops/rules": {"ops/table", "_c/device", "_c/dispatch", "_c/ops"},
        "ops/decompositions": {"ops/table", "ops/rules", "ops/nn", "_c/ops"},
        "ops/elementwise": {"ops/table", "ops/rules", "ops/decompositions"},
        "ops/reductions": {"ops/table", "ops/rules", "ops/decompositions"},
        "ops/indexing": {"ops/table", "ops/rules", "ops/reductions", "_c/dispatch"},
        "ops/shape": {"ops/table", "ops/rules", "_c/ops"},
        "ops/creation": {"ops/table", "ops/rules", "ops/shape", "_c/ops", "_c/python", "."},
        "ops/linalg": {"ops/table", "ops/rules", "ops/reductions", "."},
        "ops/fft": {"ops/table", "ops/rules", "ops/creation"},
        "ops/nn": {"ops/table", "ops/rules", "_c/base", "_c/graph"},
        "ops": {"ops/table"},  # and by name every module in it
        "backend": {
            *(*BELOW_OPS, "_c/dispatch", "_c/python", "ops", "ops/table", "cuda"),
            *("backend/doctor", "."),
        },
        "backend/doctor": {"_c/device", "backend", "ops", "ops/table", "testing"},
        "refbackend": {"backend"},
        "autograd": {
            *("_help", "autograd/diagnostics"),
            *(*BELOW_OPS, "_c/dispatch", "_c/ops", "_c/engine", "_c/transforms", "_c/interop"),
            *("_c/python", "ops", "func", "profiler", "utils", "."),
        },
        "autograd/diagnostics": {
            *("_c/base", "_c/graph", "_c/ops", "_c/engine", "_c/interop", "_c/python"),
            *("func", "ops", "autograd", "_interop", "."),
        },
        "func": {"_help", "_c/graph", "_c/engine", "_c/transforms", "ops", "autograd", "nn"},
        "nn": {"_help", "_c/graph", "_c/python", "ops/nn", "ops/rules", "utils", "."},
        "amp": {"_c/transforms", "ops/rules", "."},
        "_dynamo": {"compiler", "."},
        "compiler": {
            *(
                "_c/base",
                "_c/dispatch",
                "_c/graph",
                "_c/engine",
                "_c/capture",
                "_c/program",
                "_c/python",
                "_c/transforms",
                "ops",
                "autograd",
                "func",
                "nn",
                "utils",
                "_interop",
                ".",
            ),
        },
        "cpu": {"amp"},
        "cuda": {"_help", "amp", "_c/base", "_c/device", "backend", "."},
        "optim": {"_help", "_c/base", "_c/python", "nn", "ops/rules", "sparse", "utils", "."},
        "utils": {
            "_help",
            *(*BELOW_OPS, "_c/ops", "_c/engine", "_c/transforms", "_c/interop", "_c/python"),
            *("ops", "backend", "autograd", "func", "."),
        },
        "library": {"_help", "autograd", "backend", "serialization", "utils", "."},
        "sparse": {"_help", "_c/engine", "."},
        "storage": {
            *("_help", "_c/base", "_c/device", "_c/interop", "multiprocessing", "ops/rules", "."),
        },
        "multiprocessing": {"_c/graph", "_c/interop", "serialization", "storage", "nn", "utils"},
        "serialization": {
            *("_c/base", "_c/device", "_c/graph", "_c/interop", "_c/ops", "storage", "nn", "utils"),
            *("_help", "cuda", "sparse"),
        },
        "_interop": {*BELOW_OPS, "_c/interop", "_c/ops", "_c/transforms", "backend", "utils"},
        "signal": {"_help", "ops/creation"},
        "array_api": {
            *("_c/base", "_c/device", "_c/graph", "_c/interop"),
            *("ops", "backend", "utils", "."),
        },
        "profiler": {"_help"},
        "_help": set(),
        "testing/references": set(),  # only NumPy: what an op computes is no part of its test
        "testing": {
            *("_c/base", "_c/graph", "_c/dispatch", "_c/engine", "ops", "ops/table", "backend"),
            *("autograd", "func", "sparse", "_interop", "."),
        },
        ".": {
            "_help",
            *(*BELOW_OPS, "_c/dispatch", "_c/ops", "_c/engine", "_c/transforms", "_c/interop"),
            *(
                "_c/python",
                "ops",
                "ops/indexing",
                "ops/rules",
                "backend",
                "autograd",
                "nn",
                "_interop",
                "utils",
            ),
            *("storage", "amp"),
        },
    },
    "packages/backend-cpu/src/pullback_cpu": {
        "runtime": {"pullback"},
        "math": {"kernels/common"},
        "kernels/common": {"runtime"},
        "gemm": {"runtime", "math", "kernels/common"},
        "kernels": {"runtime", "math", "gemm", "kernels/common"},
        ".": {"runtime", "kernels", "pullback"},
    },
    "packages/backend-cuda/src/pullback_cuda": {
        "runtime": {"pullback"},
        "kernels/common": {"runtime"},
        "kernels/strides": {"kernels/common"},
        "kernels": {"runtime", "kernels/common", "kernels/strides", "pullback"},
        "fused": {"runtime", "kernels", "kernels/common", "pullback"},
        ".": {"runtime", "kernels", "pullback"},
    },
    "packages/profiler/src/pullback_profiler": {
        "events": set(),
        "importers": {"events"},
        "record": {"events", "pullback"},
        "export": {"events", "record"},
        ".": {"events", "importers", "record", "export", "pullback"},
    },
    "packages/distributed/src/pullback_distributed": {
        "groups": {"faults", "."},
        "faults": {"groups", ".", "pullback"},
        "collectives": {"faults", "groups", ".", "pullback"},
        "nn": {"collectives", "groups", "pullback"},
        "data_parallel": {"algorithms", "collectives", "groups", ".", "pullback"},
        "algorithms": {"collectives", "data_parallel", "groups", ".", "pullback"},
        "optim": {"algorithms", "collectives", "groups", "pullback"},
        "fsdp": {"checkpoint", "collectives", "groups", "pullback"},
        "checkpoint": {"collectives", "groups", "pullback"},
        ".": {"collectives", "data_parallel", "groups", "nn", "pullback"},
    },
}
# Imports in functions that close a circle of modules, each with the reason.
LATE = {
    ("pullback._c.transforms.batching", "pullback._batching"): "the rules are ops in Python",
    ("pullback.autograd._dot", "pullback.autograd.graph"): "`to_dot` is one of graph's names",
    ("pullback.autograd._vmapped", "pullback.autograd.function"): "vmap makes custom functions",
}
RUNTIME_REQUIREMENTS = {"numpy", "pluggy", "ml_dtypes"}


def resolve(module, package, level):
    """Return the absolute name of a relative import made in ``package``."""
    if not level:
        return module
    base = package.split(".")
    base = base[: len(base) - (level - 1)]
    return ".".join(base + ([module] if module else []))


def python_imports(path, package):
    """Yield (absolute name, is at module level) of each import in a Python file."""
    tree = ast.parse(path.read_text(), str(path))
    outer = {node for top in tree.body for node in walk_outside_functions(top)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = resolve(node.module, package, node.level)
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((name, node in outer) for name in names)


def walk_outside_functions(node):
    """Yield a node and its descendants, but not those in functions."""
    yield node
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        for child in ast.iter_child_nodes(node):
            yield from walk_outside_functions(child)


CYTHON_IMPORT = re.compile(r"^([ \t]*)c?import\s+([\w., \t]+)", re.M)
CYTHON_FROM = re.compile(
    r"^([ \t]*)from\s+(\.*)([\w.]*)\s+c?import\s+(?:\(([^)]*)\)|([^(\n]*))", re.M
)


def cython_imports(path, package):
    """Yield (absolute name, is at module level) of each import and cimport in a Cython file."""
    text = path.read_text()
    for indent, names in CYTHON_IMPORT.findall(text):
        for name in names.split(","):
            yield name.split(" as ")[0].strip(), not indent
    for indent, dots, module, enclosed, names in CYTHON_FROM.findall(text):
        base = resolve(module, package, len(dots))
        for name in (enclosed or names).split(","):
            if name.strip():
                yield f"{base}.{name.split(' as ')[0].strip()}", not indent


def sources(folder):
    """Yield each source file under a folder with the dotted name of its package."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in {".py", ".pyx", ".pxd", ".pxi"} or path.name.endswith(
            (".pyx.in", ".pxd.in")
        ):
            yield path, ".".join(path.relative_to(folder.parent).parent.parts)


def imports(path, package):
    """Return every import of a file."""
    return list((python_imports if path.suffix == ".py" else cython_imports)(path, package))


def part_of(name):
    """Return which part of the core a module belongs to: the second word of its name."""
    words = name.split(".")
    return words[1] if words[0] == "pullback" and len(words) > 1 else None


def is_core(name):
    return name.split(".")[0] == "pullback"


def test_the_parser_sees_every_form(tmp_path):
    """The checks below are worth what this reader is worth."""
    (tmp_path / "a.py").write_text(
        "import numpy as np, pullback.autograd\nfrom ..b import c\ndef f():\n    from . import d\n"
    )
    assert imports(tmp_path / "a.py", "pullback._c") == [
        ("numpy", True),
        ("pullback.autograd", True),
        ("pullback.b.c", True),
        ("pullback._c.d", False),
    ]
    (tmp_path / "a.pyx").write_text(
        "cimport cython\nfrom .node cimport (Node,\n    Edge)\n"
        "from pullback.abi cimport pb_call as c\nfrom .device cimport (\n    of, to)\n"
        "def f():\n    import scipy\n"
    )
    assert imports(tmp_path / "a.pyx", "pullback._c") == [
        ("cython", True),
        ("scipy", False),
        ("pullback._c.node.Node", True),
        ("pullback._c.node.Edge", True),
        ("pullback.abi.pb_call", True),
        ("pullback._c.device.of", True),
        ("pullback._c.device.to", True),
    ]


def test_core_has_the_parts_that_the_rules_name(root):
    names = {path.stem for path in (root / CORE).iterdir()}
    assert {"_c", "ops", "autograd", "backend", "refbackend", "testing"} <= names


def test_op_table_is_imported_without_compiled_code(root):
    """Generators and documents read the table where nothing is built; formulas run later."""
    bad = []
    for path, package in sources(root / CORE / "ops"):
        for name, at_module_level in imports(path, package):
            if not at_module_level:
                continue
            outside = is_core(name) and not name.startswith("pullback.ops")
            if outside or (not is_core(name) and name.split(".")[0] not in sys.stdlib_module_names):
                bad.append(f"{path.relative_to(root)} imports {name}")
    assert bad == []


def test_core_needs_only_its_requirements_to_be_imported(root):
    """Anything else (scipy, the profiler, pytest) is imported in the function that needs it."""
    allowed = (
        RUNTIME_REQUIREMENTS | set(sys.stdlib_module_names) | {"pullback", "cython", "cpython"}
    )
    allowed |= {"libc", "Cython"}
    bad = []
    for path, package in sources(root / CORE):
        if part_of(f"{package}.{path.stem}") == "testing":  # for test runs, where pytest is there
            continue
        for name, at_module_level in imports(path, package):
            if at_module_level and name.split(".")[0] not in allowed:
                bad.append(f"{path.relative_to(root)} imports {name}")
    assert bad == []


@pytest.mark.parametrize(
    "folder",
    [
        "packages/backend-cpu/src/pullback_cpu",
        "packages/backend-cuda/src/pullback_cuda",
        "packages/profiler/src/pullback_profiler",
        "examples/native_kernel/src/pullback_native",
        "examples/third_party_backend/src/pullback_example",
        "examples/mlx_backend/src/pullback_mlx",
    ],
)
def test_plugin_uses_the_contract_only(root, folder):
    contract = {"abi", "pool", "backend", "get_include", "testing"}
    # What users call may be made of what users call: `import pullback`, and nothing inside it.
    for_users = {"devices.py", "memory.py", "streams.py", "user_kernels.py"}
    bad = []
    for path, package in sources(root / folder):
        for name, _ in imports(path, package):
            if name == "pullback" and path.name in for_users:
                continue
            if is_core(name) and part_of(name) not in contract:
                bad.append(f"{path.relative_to(root)} imports {name}")
    assert bad == []


def modules_of(package):
    """Return what each module of a package imports, by the modules' dotted names."""
    found = {}
    for path, parent in sources(package):
        name = parent if path.stem == "__init__" else f"{parent}.{path.name.split('.')[0]}"
        found.setdefault(name, set()).update(name for name, _ in imports(path, parent))
    return found


def imported_module(name, modules):
    """Return the module that a name is from: the longest of its beginnings that is one, or None."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def folder_of(module, folders):
    """Return which of these folders of a package a module is in, "." for the package itself."""
    words = module.split(".")[1:]
    return next((name for name in ("/".join(words[:2]), *words[:1]) if name in folders), ".")


@pytest.mark.parametrize("package", ALLOWED)
def test_folders_import_only_what_is_below_them(root, package):
    """Both ways: an edge that nothing uses any more leaves the list."""
    package, allowed = root / package, ALLOWED[package]
    modules = modules_of(package)
    used = {}
    for module, names in modules.items():
        source = folder_of(module, allowed)
        for name in names:
            home = imported_module(name, modules)
            target = folder_of(home, allowed) if home else "pullback" if is_core(name) else source
            if name.startswith(("pullback.abi", "pullback.pool")) or name == package.name:
                continue  # the contract, below everything; the public names, looked up late
            if target != source:
                used.setdefault((source, target), []).append(f"{module} imports {name}")
    edges = {(source, target) for source, targets in allowed.items() for target in targets}
    assert {edge: used[edge] for edge in used.keys() - edges} == {}
    assert edges - used.keys() == set()


@pytest.mark.parametrize("package", ALLOWED)
def test_modules_import_each_other_in_no_circle(root, package):
    root_name = package.rpartition("/")[2]
    modules = modules_of(root / package)
    # A package's own module has the public names, which formulas look up when they run.
    graph = {
        module: {imported_module(name, modules) for name in names} - {None, module, root_name}
        for module, names in modules.items()
    }
    for module, late in LATE:
        if module in graph:
            assert late in graph[module]
            graph[module].remove(late)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_folders_keep_their_size(root):
    """At most 20 source files in a folder, not counting ``__init__.py``."""
    endings = {".py", ".pyx", ".pxd", ".in", ".h", ".c", ".cu", ".cuh"}
    folders = [
        folder for part in ("src", "tools") for folder in root.glob(f"packages/*/{part}/**/")
    ]
    folders += [
        folder
        for part in ("benchmarks", "examples", "tools")
        for folder in root.glob(f"{part}/**/")
    ]
    crowded = {}
    for folder in folders:
        files = [path for path in folder.iterdir() if path.suffix in endings]
        count = sum(path.name != "__init__.py" for path in files)
        if count > 20 and "build" not in folder.parts:
            crowded[folder.relative_to(root).as_posix()] = count
    assert crowded == {}


@pytest.mark.parametrize("folder", ["packages", "tools", "benchmarks", "examples"])
def test_modules_keep_their_size(root, folder):
    limit = {"engine.pyx": 700, "abi.h": 300}
    bad = []
    for path in sorted((root / folder).rglob("*")):
        ours = not {"build", "tests"} & set(path.parts)  # an editable install builds in `build`
        if ours and path.suffix in {".py", ".pyx", ".pxd", ".h", ".c", ".in"}:
            lines = path.read_text().count("\n")
            if lines > limit.get(path.name, 600):
                bad.append(f"{path.relative_to(root)} has {lines} lines")
    assert bad == []


def test_compiled_code_enters_no_context(root):
    """Cython's `with` reads a null pointer where a traceback finds no memory."""
    bad = []
    for path in sorted(root.glob("packages/*/src/**/*")):
        if path.suffix in {".pyx", ".pxd", ".in"}:
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if re.match(r"\s+with (?!nogil|gil)[^:]*:", line):
                    bad.append(f"{path.relative_to(root)}:{number}: {line.strip()}")
    assert bad == []
