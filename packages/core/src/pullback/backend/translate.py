"""Translate Cython modules to C, many in one process: a step of a package's build.

    python translate.py [--checked] [-I FOLDER] [-X NAME=VALUE] [--renderer FILE] --root SRC \
        --depfile FILE --output-folder FOLDER SOURCE...

Half a second of each run of ``cython`` goes into starting the compiler; here it starts once for a
folder of modules. A C file that would be as it is keeps its time, so that ninja compiles nothing
again. The core and the backends of this repository are built with it, and others can be: it
imports nothing of pullback.

``--root`` is the folder of the top-level package: the path of a source below it is the module's
name. A ``.pyx.in`` is a template, which ``render_module(path, used)`` of the ``--renderer``
turns into Cython; it adds the paths of the files that it read to the list ``used``. ``--depfile``
lists for ninja what the modules were made from.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import Cython
from Cython.Build.Dependencies import create_dependency_tree
from Cython.Compiler.CmdLine import parse_command_line
from Cython.Compiler.Main import Context
from Cython.Compiler.Main import compile as compile_source

__all__ = ["main"]

# Without the source's text in the C file, a changed comment compiles nothing again.
DIRECTIVES = {
    "wraparound": False,
    "cdivision": True,
    "binding": False,
    "emit_code_comments": False,
    "auto_pickle": False,  # classes that can be pickled or copied say so
}
CHECKS = ("boundscheck", "nonecheck", "initializedcheck")


@functools.cache
def file_digest(path: str) -> str:
    """Return a digest of a file's bytes."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def cython_arguments(options: argparse.Namespace) -> list[str]:
    """Return the command line of ``cython`` for every module of a run."""
    directives = [f"{name}={value}" for name, value in DIRECTIVES.items()]
    directives += [f"{name}={options.checked}" for name in CHECKS]
    arguments = ["-3"]
    for folder in (options.root, *options.include):
        arguments += ["-I", str(folder)]
    for directive in (*directives, *options.directive):
        arguments += ["-X", directive]
    return arguments


def load_renderer(path: Path | None) -> Callable[[Path, list[Path]], str]:
    """Return ``render_module`` of a file, whose neighbours it may import."""
    if path is None:
        raise SystemExit("a template needs a --renderer")
    sys.path.insert(0, str(path.parent))
    return runpy.run_path(str(path))["render_module"]


def dependencies(name: str, source: Path, folders: list[str], tree) -> set[str]:
    """Return the files that a module is made from."""
    found = set(tree.all_dependencies(str(source)))
    for folder in folders:  # the tree looks for the module's own .pxd beside the source only
        own = Path(folder, *name.split(".")).with_suffix(".pxd")
        if own.is_file():
            found |= tree.all_dependencies(str(own))
    return {os.path.relpath(path) for path in found}


def write(path: Path, text: str) -> None:
    """Write a file unless it has this text."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def translate(name: str, source: Path, output: Path, arguments: list[str]) -> set[str]:
    """Write a module's C file unless it has that text; return the files it is made from.

    Raises ``SystemExit`` after Cython has written what is wrong.
    """
    fresh = output.with_suffix(".new.c")
    line = [*arguments, "--module-name", name, str(source), "-o", str(fresh)]
    options, _ = parse_command_line(line)
    tree = create_dependency_tree(Context.from_options(options), quiet=True)
    used = dependencies(name, source, options.include_path, tree)
    made_of = [f"{path} {file_digest(path)}" for path in sorted({__file__, *used})]
    digest = hashlib.sha256("\n".join([Cython.__version__, *line, *made_of]).encode()).hexdigest()
    stamp = output.with_suffix(".digest")
    if output.is_file() and stamp.is_file() and stamp.read_text() == digest:
        return used
    result = compile_source(str(source), options, full_module_name=name)
    if result.num_errors:
        raise SystemExit(f"{source}: Cython found {result.num_errors} errors")
    write(output, fresh.read_text(encoding="utf-8"))
    fresh.unlink()
    stamp.write_text(digest)
    return used


def main(command: list[str]) -> None:
    """Translate what the command line names."""
    parser = argparse.ArgumentParser(description="Translate Cython modules to C.")
    parser.add_argument("sources", nargs="+", type=Path, metavar="SOURCE")
    parser.add_argument("--root", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--output-folder", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--depfile", type=Path, required=True, metavar="FILE")
    parser.add_argument("--renderer", type=Path, metavar="FILE")
    parser.add_argument("--checked", action="store_true", help="check indices, None and views")
    parser.add_argument("-I", "--include", type=Path, action="append", default=[])
    parser.add_argument("-X", "--directive", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args(command)
    arguments, used, outputs = cython_arguments(options), {__file__}, []
    render = functools.cache(load_renderer)
    for source in options.sources:
        folder = source.resolve().parent.relative_to(options.root.resolve())
        stem = source.name.partition(".")[0]
        outputs.append(options.output_folder / f"{stem}.c")
        if source.suffix == ".in":
            templates: list[Path] = []
            text = render(options.renderer)(source, templates)
            source = options.output_folder / f"{stem}.pyx"
            write(source, text)
            used |= {str(path) for path in templates}
        used |= translate(".".join([*folder.parts, stem]), source, outputs[-1], arguments)
    names = " ".join(path.replace(" ", r"\ ") for path in sorted(used))
    options.depfile.write_text(f"{outputs[0]}: {names}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
