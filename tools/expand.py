"""Print what a template becomes: ``nox -s expand -- NAME``.

    python tools/expand.py reduce                        # or kernels/reductions/reduce
    python tools/expand.py cuda reduce --output FILE
    python tools/expand.py core pullback.linalg

``cpu``, which may be left out: a kernel template in the language of Cython's Tempita, rendered to
the module that Cython compiles. ``cuda``: a kernel source in C++, as nvcc and NVRTC read it: the
package's headers stand in place of the lines that include them. ``core``: the type stub that
opgen.py writes from the op table.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TOOLS = [ROOT / "packages" / name / "tools" for name in ("core", "backend-cpu")]
CPU = ROOT / "packages/backend-cpu/src/pullback_cpu"
CUDA = ROOT / "packages/backend-cuda/src/pullback_cuda"


class Package(NamedTuple):
    """What can be expanded in a package: names, and the function that expands one of them."""

    names: Callable[[], list[str]]
    expand: Callable[[str], str]


def paths(folder: Path, ending: str) -> list[str]:
    """Return the files with this ending by their path in a folder, without the ending."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob(f"*{ending}"))
    return sorted(name.removesuffix(ending) for name in found)


def expand_cpu(name: str) -> str:
    """Return the Cython source that a template is rendered to."""
    from render import render_module

    return render_module(CPU / f"{name}.pyx.in", [])


def expand_cuda(name: str) -> str:
    """Return a kernel source with the package's headers in place, each once."""
    return with_headers(CUDA / f"{name}.cu", set())


def with_headers(path: Path, seen: set[Path]) -> str:
    """Return a source in which headers of the package stand in place of their ``#include``."""
    seen.add(path)

    def replace(line: re.Match[str]) -> str:
        header = CUDA / line[1]
        if not header.is_file():
            return line[0]
        if header in seen:
            return f"// {line[1]} stands above"
        return f"// ---- {line[1]}\n{with_headers(header, seen)}// ---- end of {line[1]}"

    text = path.read_text(encoding="utf-8")
    text = re.sub(r"^#pragma once\n", "", text, flags=re.MULTILINE)
    return re.sub(r'^[ \t]*#[ \t]*include[ \t]+"([^"\n]+)"', replace, text, flags=re.MULTILINE)


def stub_names() -> list[str]:
    """Return the modules whose stubs are made from the op table."""
    from opgen import NAMESPACES

    return sorted(NAMESPACES)


def expand_core(name: str) -> str:
    """Return the stub of a module."""
    from opgen import load_table, make_stub

    return make_stub(load_table(), name)


PACKAGES = {
    "core": Package(stub_names, expand_core),
    "cpu": Package(lambda: paths(CPU, ".pyx.in"), expand_cpu),
    "cuda": Package(lambda: paths(CUDA, ".cu"), expand_cuda),
}


def find_name(name: str, names: list[str]) -> str:
    """Return the one of ``names`` that is ``name`` or ends with it.

    Raises: ValueError where there is none, or more than one; it lists them.
    """
    if name in names:
        return name
    found = [known for known in names if known.endswith((f"/{name}", f".{name}"))]
    if len(found) == 1:
        return found[0]
    listed = "\n  ".join(found or names)
    problem = "several have the name" if found else "no template has the name"
    raise ValueError(f"{problem} {name!r}:\n  {listed}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", nargs="?", choices=PACKAGES, default="cpu")
    parser.add_argument("name", help="a module, or the end of its path: kernels/reductions/reduce")
    parser.add_argument("--output", metavar="FILE", type=Path, help="write there, not to stdout")
    options = parser.parse_args(arguments)
    sys.path[:0] = [str(folder) for folder in TOOLS if str(folder) not in sys.path]
    package = PACKAGES[options.package]
    try:
        name = find_name(options.name.removesuffix(".pyx.in").removesuffix(".cu"), package.names())
    except ValueError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    text = package.expand(name)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
