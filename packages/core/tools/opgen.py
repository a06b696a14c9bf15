"""Generate type stubs from the op table; opdocs.py writes its pages of the documentation.

    python opgen.py --stubs DIR               # DIR/pullback/__init__.pyi and its like
    python opgen.py --stub MODULE FILE        # one stub; the build does this
    python opgen.py --stub MODULE FILE --depfile FILE

The table is imported alone, without the compiled modules, so that it can be read before they are
built. The rest of a stub is in ``stubs/MODULE.pyi.in``, and a class of it may have a file of its
own. Stubs of ops replace the lines ``# {methods}`` and ``# {functions}``, such a file the line with
its name. This is a generator with a table as input, not a template language: kernels have that
(Tempita, packages/backend-cpu/tools/render.py). ``nox -s expand -- core MODULE`` prints a stub.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import types
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parent
PACKAGE = TOOLS.parent / "src" / "pullback"
NAMESPACES = {
    "pullback": "",
    "pullback.fft": "fft",
    "pullback.linalg": "linalg",
    "pullback.nn.functional": "functional",
    "pullback.special": "special",
}

ANNOTATIONS = {
    "Tensor": "Tensor",
    "Tensor[]": "_Tensors",
    "Operand": "Tensor | _Number",
    "Scalar": "_Number",
    "int": "_int",
    "int[]": "_Sizes",
    "float": "_float",
    "bool": "_bool",
    "str": "_str",
    "dtype": "_dtype",
    "device": "_DeviceLike",
    "memory_format": "_memory_format",
    "layout": "_layout",
    "any": "Any",
}
RESULTS = {
    "Tensor": "Tensor",
    "Tensor[]": "tuple[Tensor, ...]",
    "bool": "_bool",
    "any": "Any",
    "None": "None",
}
# Ops that return several tensors, or other than one by their arguments.
NAMED_RESULTS = {
    **dict.fromkeys(("sort", "topk", "kthvalue", "mode", "cummax", "cummin"), "_ValuesIndices"),
    **dict.fromkeys(("var_mean", "std_mean"), "tuple[Tensor, Tensor]"),
    **dict.fromkeys(("broadcast_tensors", "meshgrid", "unravel_index"), "tuple[Tensor, ...]"),
    "aminmax": "_Bounds",
    "histogram": "_Histogram",
    "frexp": "_Parts",
}
ALONG = "dim: _int, keepdim: _bool = False, *, out: _Tensors | None = None"
BY_ARGUMENTS = {
    **dict.fromkeys(("median", "nanmedian"), (("", "Tensor"), (ALONG, "_ValuesIndices"))),
    **dict.fromkeys(
        ("max", "min"),
        (
            ("", "Tensor"),
            (ALONG, "_ValuesIndices"),
            ("other: Tensor, *, out: Tensor | None = None", "Tensor"),
        ),
    ),
}
PLAIN_HEADER = '''"""Types of {module}; made from the op table by tools/opgen.py."""

from builtins import bool as _bool, float as _float, int as _int, str as _str
from typing import Any, overload

from pullback import Tensor, _DeviceLike, _dtype, _layout, _memory_format
from pullback import _Number, _Sizes, _Tensors

# {{functions}}
'''

Entry = Any  # pullback.ops.Entry, which exists only after load_table


def load_table(package: Path = PACKAGE) -> Mapping[str, Entry]:
    """Import the op table of a source tree, without ``pullback`` itself."""
    sys.dont_write_bytecode = True
    if "pullback" not in sys.modules:
        bare = types.ModuleType("pullback")
        bare.__path__ = [str(package)]
        sys.modules["pullback"] = bare
    return importlib.import_module("pullback.ops").ENTRIES


def table_files() -> list[Path]:
    """Return the files that the loaded table was read from."""
    names = [name for name in sys.modules if name.startswith("pullback.ops")]
    files = [getattr(sys.modules[name], "__file__", None) for name in names]
    return sorted(Path(file) for file in files if file)


# -- results ---------------------------------------------------------------------------------------


def named_results(table: Mapping[str, Entry]) -> dict[str, tuple[str, ...]]:
    """Return the fields of the results of ops that return several, by the op's name."""
    made = importlib.import_module("pullback.ops.table.schema").result_type.made
    others = NAMED_RESULTS.keys() | BY_ARGUMENTS.keys()
    return {name: made[name].fields for name in sorted(made.keys() & table.keys() - others)}


def class_of_results(name: str) -> str:
    """Return the name that the results of an op have in stubs."""
    return "_" + "".join(part.capitalize() for part in name.split("_"))


def results(table: Mapping[str, Entry], module: str) -> Iterator[str]:
    """Yield the classes of results in the package's own stub, their imports in the others."""
    for name, fields in named_results(table).items():
        if module != "pullback":
            yield f"from pullback import {class_of_results(name)}"
            continue
        yield f"class {class_of_results(name)}(NamedTuple):"
        yield from (f"    {field}: Tensor" for field in fields)
        yield ""


# -- signatures ------------------------------------------------------------------------------------


def annotate(kind: str) -> str:
    """Return the annotation for a type of the table's signatures.

    Raises: KeyError for a type that the table has not had before.
    """
    if kind.endswith("?"):
        inner = annotate(kind[:-1])
        return inner if inner == "Any" else f"{inner} | None"
    return ANNOTATIONS[kind]


def render_argument(argument: Any, *, name: str | None = None) -> str:
    """Return one argument in the syntax of a stub."""
    text = f"{name or argument.name}: {annotate(argument.type)}"
    return text if argument.required else f"{text} = {argument.default!r}"


def render_arguments(entry: Entry, *, method: bool, inplace: bool, out: bool, spread: bool) -> str:
    """Return the argument list; ``spread`` gives ``*size: int`` for the last positional one."""
    positional = [a for a in entry.arguments if not a.keyword_only]
    keywords = [a for a in entry.arguments if a.keyword_only]
    parts = []
    for position, argument in enumerate(positional):
        if method and position == 0:
            parts.append("self")
        elif inplace and position == 0 and not argument.written:
            parts.append("input: Tensor")
        elif spread and position == len(positional) - 1:
            parts.append(f"*{argument.name}: {'Tensor' if argument.name == 'tensors' else '_int'}")
        else:
            name = "input" if argument.name == "self" else None
            parts.append(render_argument(argument, name=name))
    named = [render_argument(argument) for argument in keywords]
    if out and "out" not in [argument.name for argument in keywords]:
        named.append("out: Tensor | None = None")
    if named and not spread:
        parts.append("*")
    return ", ".join(parts + named)


def result_of(table: Mapping[str, Entry], entry: Entry) -> str:
    """Return the annotation of an op's result."""
    if entry.name in named_results(table):
        return class_of_results(entry.name)
    return NAMED_RESULTS.get(entry.name, RESULTS[entry.returns])


def render_stub(
    entry: Entry, result: str, name: str, *, method: bool, out: bool, overloaded: bool = False
) -> Iterator[str]:
    """Yield the lines of one function or method; ``overloaded`` if there are more of its name."""
    first_line = entry.doc.splitlines()[0].replace("\\", "\\\\")
    for spread in (True, False) if entry.varargs else (False,):
        arguments = render_arguments(
            entry, method=method, inplace=name.endswith("_"), out=out, spread=spread
        )
        if entry.varargs or overloaded:
            yield "@overload"
        yield f"def {name}({arguments}) -> {result}:"
        yield f'    """{first_line}"""'


def render_all(
    table: Mapping[str, Entry], entry: Entry, name: str, *, method: bool, out: bool
) -> Iterator[str]:
    """Yield the lines of one function or method and of the overload for its further keywords."""
    if entry.name in BY_ARGUMENTS:
        for arguments, result in BY_ARGUMENTS[entry.name]:
            first = "self" if method else "input: Tensor"
            yield "@overload"
            yield f"def {name}({first}{', ' * bool(arguments)}{arguments}) -> {result}:"
            yield f'    """{entry.doc.splitlines()[0]}"""'
        return
    forms = [entry, table[entry.overload]] if entry.overload else [entry]
    for form in forms:
        result = result_of(table, form)
        several = len(forms) > 1
        yield from render_stub(form, result, name, method=method, out=out, overloaded=several)


def names_of(entry: Entry) -> Iterator[tuple[str, bool]]:
    """Yield the public names of an entry, each with whether it takes ``out=``."""
    for name in (entry.name, *entry.aliases):
        yield name, entry.out
        if entry.inplace is True:
            yield f"{name}_", False


def public_names_of(entry: Entry) -> Iterator[tuple[str, bool]]:
    """Yield the names of an entry's functions; an entry may have one other than its own."""
    if isinstance(entry.function, str):
        yield entry.function, entry.out
        return
    for name, out in names_of(entry):
        variant = entry.inplace is True and name not in (entry.name, *entry.aliases)
        if entry.inplace_function or not variant:
            yield name, out


def functions(table: Mapping[str, Entry], namespace: str) -> Iterator[str]:
    """Yield the stubs of a namespace's functions, sorted by name."""
    found = {
        name: (entry, out)
        for entry in table.values()
        if entry.function and namespace in entry.namespaces
        for name, out in public_names_of(entry)
    }
    for entry in table.values():
        for owner, _, name in (name.partition(".") for name in entry.elsewhere):
            if owner == namespace:
                found[name] = entry, entry.out and not name.endswith("_")
    for name in sorted(found):
        entry, out = found[name]
        yield from render_all(table, entry, name, method=False, out=out)


def methods(table: Mapping[str, Entry], by_hand: Container[str] = ()) -> Iterator[str]:
    """Yield the stubs of Tensor's methods, sorted by name, but those that are written by hand."""
    found = {}
    for entry in table.values():
        if isinstance(entry.method, str):
            found[entry.method] = entry, entry.out
        elif entry.method:
            found.update({name: (entry, out) for name, out in names_of(entry)})
    for name in sorted(name for name in found if name not in by_hand):
        entry, out = found[name]
        yield from render_all(table, entry, name, method=True, out=out)


# -- files -----------------------------------------------------------------------------------------


def template_of(module: str) -> Path:
    """Return the path of the hand-written part of a module's stub."""
    return TOOLS / "stubs" / f"{module}.pyi.in"


def read_template(module: str) -> str:
    """Return the hand-written part of a module's stub, with the classes that have files."""
    if not template_of(module).exists():
        return PLAIN_HEADER.format(module=module)
    text = template_of(module).read_text()
    for part in parts_of(module):
        text = text.replace(f"# {{{part.name.removesuffix('.pyi.in')}}}\n", part.read_text())
    return text


def parts_of(module: str) -> list[Path]:
    """Return the paths of the parts of a module's stub that have a file of their own."""
    classes = (TOOLS / "stubs").glob(f"{module}.[A-Z]*.pyi.in")
    return sorted(classes)


def make_stub(table: Mapping[str, Entry], module: str) -> str:
    """Return the stub of a module."""
    text = read_template(module)
    by_hand = re.findall(r"^    def (\w+)\(", text.partition("class Tensor")[2], re.M)
    lines = []
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        if line.strip() == "# {methods}":
            lines += [indent + made for made in methods(table, by_hand)]
        elif line.strip() == "# {results}":
            lines += results(table, module)
        elif line.strip() == "# {functions}":
            lines += [indent + made for made in functions(table, NAMESPACES[module])]
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def stub_path(module: str) -> Path:
    """Return the path of a module's stub in a folder of stubs."""
    parts = module.split(".")
    return Path(*parts, "__init__.pyi") if len(parts) == 1 else Path(*parts).with_suffix(".pyi")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_depfile(path: Path, target: Path, module: str) -> None:
    """Return the dependencies of a stub in make's syntax, which ninja reads."""
    files = [*table_files(), Path(__file__).resolve()]
    if template_of(module).exists():
        files += [template_of(module), *parts_of(module)]
    listed = " ".join(str(file).replace(" ", "\\ ") for file in files)
    path.write_text(f"{str(target).replace(' ', chr(92) + ' ')}: {listed}\n")


# -- command line ----------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stubs", metavar="DIR", type=Path, help="write all stubs below DIR")
    parser.add_argument("--stub", nargs=2, metavar=("MODULE", "FILE"), help="write one stub")
    parser.add_argument("--depfile", metavar="FILE", type=Path, help="list the files of --stub")
    given = parser.parse_args(arguments)
    if not (given.stubs or given.stub):
        parser.error("say what to write: --stubs or --stub")
    if given.depfile and not given.stub:
        parser.error("--depfile needs --stub")
    if given.stub and given.stub[0] not in NAMESPACES:
        parser.error(f"no stub is made for {given.stub[0]!r}, only for {', '.join(NAMESPACES)}")
    table = load_table()
    if given.stubs:
        for module in NAMESPACES:
            write(given.stubs / stub_path(module), make_stub(table, module))
    if given.stub:
        module, target = given.stub[0], Path(given.stub[1])
        write(target, make_stub(table, module))
        if given.depfile:
            write_depfile(given.depfile, target, module)
    return 0


if __name__ == "__main__":
    sys.exit(main())
