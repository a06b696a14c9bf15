"""Render a kernel template: ``python render.py template.pyx.in output.pyx``.

Templates are written in the small language of Cython's own Tempita. They see the table of
dtypes.py, and ``include(name, **values)`` renders another template of their folder in place.
"""

from __future__ import annotations

import sys
from pathlib import Path

import dtypes
from Cython import Tempita


def render_template(source: Path, **values: object) -> str:
    """Return the Cython source that a template stands for."""

    def include(name: str, **inner: object) -> str:
        return render_template(source.with_name(name), **inner)

    template = Tempita.Template(
        source.read_text(encoding="utf-8"),
        name=str(source),
        namespace={"dtypes": dtypes, "include": include, **values},
    )
    return template.substitute()


def main(arguments: list[str]) -> int:
    """Write the rendered template to the output path."""
    source, output = map(Path, arguments)
    notice = f"# Generated from {source.name} by render.py; edit that file instead.\n"
    output.write_text(notice + render_template(source), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
