"""Render kernel templates to Cython, for the build and for ``nox -s expand -- NAME``.

Templates are written in the language of Tempita, as Cython ships it, the only template language of
the kernels. They see the table of dtypes.py, and ``include(name, **values)`` renders another
template of their folder in place.
"""

from __future__ import annotations

import re
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


def render_module(source: Path, used: list[Path]) -> str:
    """Return the module that a template stands for, with at most two empty lines in a row.

    Adds to ``used`` the files that the module is made from.
    """
    used += [Path(__file__), Path(dtypes.__file__)]
    text = render_template(source, used)
    notice = f"# Generated from {source.name} by render.py; edit that file instead.\n"
    return notice + re.sub(r"\n{4,}", "\n\n\n", text).rstrip("\n") + "\n"
