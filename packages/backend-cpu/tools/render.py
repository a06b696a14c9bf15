"""Render a kernel template: ``python render.py template.pyx.in output.pyx output.pyx.dep``.

Templates are written in the language of Tempita, as Cython ships it, the only template language of
the kernels. They see the table of dtypes.py, and ``include(name, **values)`` renders another
template of their folder in place. The third file lists for ninja what the output was made from.
At the top of the repository ``nox -s expand -- NAME`` prints the output.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import dtypes
from Cython import Tempita


def render_template(source: Path, used: list[Path], **values: object) -> str:
    """Return the Cython source that a template stands for; add the files read to ``used``."""
    used.append(source)

    def include(name: str, **inner: object) -> str:
        return render_template(source.with_name(name), used, **inner)

    template = Tempita.Template(
        source.read_text(encoding="utf-8"),
        name=str(source),
        namespace={"dtypes": dtypes, "include": include, **values},
    )
    return template.substitute()


def render_module(source: Path, used: list[Path] | None = None) -> str:
    """Return the module that a template stands for, with at most two empty lines in a row."""
    text = render_template(source, [] if used is None else used)
    notice = f"# Generated from {source.name} by render.py; edit that file instead.\n"
    return notice + re.sub(r"\n{4,}", "\n\n\n", text).rstrip("\n") + "\n"


def main(arguments: list[str]) -> int:
    """Write the rendered template to the output path, and the files it was made from."""
    source, output, depfile = map(Path, arguments)
    used = [Path(__file__), Path(dtypes.__file__)]
    output.write_text(render_module(source, used), encoding="utf-8")
    names = " ".join(str(path).replace(" ", r"\ ") for path in used)
    depfile.write_text(f"{output}: {names}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
