"""List the modules of this package for meson: ``python modules.py src/pullback_cpu``.

Each line has a folder, a module's name, the ending of its file and the marks of a compiled one,
which stand in its first line, ``# build: isa, fma``:

- ``isa``: compiled for each instruction set, as NAME_baseline, NAME_avx2, NAME_avx512.
- ``fma``: products may be fused with the sums they go into, which is faster and more accurate. Not
  in other kernels: an elementwise formula gives the same bits on each instruction set.
- ``inline``: many loops share functions, which the compiler must be allowed to inline.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

MARKS = {"isa", "fma", "inline"}


def marks_of(source: Path) -> list[str]:
    """Return the marks in the first line of a source."""
    first = source.read_text(encoding="utf-8").partition("\n")[0]
    found = re.fullmatch(r"# build: (.+)", first)
    marks = found[1].split(", ") if found else []
    if not MARKS.issuperset(marks):
        raise ValueError(f"{source}: marks are among {sorted(MARKS)}, not {marks}")
    return marks


def main(folder: str) -> None:
    """Print a line for each module, and one for the typing marker."""
    root = Path(folder)
    for source in sorted(root.rglob("*.*")):
        name, _, ending = source.name.partition(".")
        folder = source.parent.relative_to(root.parent).as_posix()
        if ending in ("pyx", "pyx.in"):
            print(folder, name, ending, ",".join(marks_of(source)) or "once")
        elif ending in ("py", "typed"):
            print(folder, name, ending, "none")


if __name__ == "__main__":
    main(*sys.argv[1:])
