"""List the files of this package for meson: ``python modules.py src/pullback_cpu``.

Each line has a folder and its files, ``pullback_cpu/gemm: __init__.py blas.pyx amx.pyx,isa,fma``,
a compiled one with the marks in its first line, ``# build: isa, fma``:

- ``isa``: compiled for each instruction set, as NAME_baseline, NAME_avx2, NAME_avx512.
- ``narrow``: with ``isa``, but not for AVX-512: it moves memory or divides, and gains nothing from
  it.
- ``fma``: products may be fused with the sums they go into, which is faster and more accurate. Not
  in other kernels: an elementwise formula gives the same bits on each instruction set.
- ``small``: compiled for size: what calls other libraries, once for a large piece of work.
- ``inline``: many loops share functions, which the compiler must be allowed to inline.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

MARKS = {"isa", "narrow", "fma", "small", "inline"}


def marks_of(source: Path) -> list[str]:
    """Return the marks in the first line of a source."""
    first = source.read_text(encoding="utf-8").partition("\n")[0]
    found = re.fullmatch(r"# build: (.+)", first)
    marks = found[1].split(", ") if found else []
    if not MARKS.issuperset(marks):
        raise ValueError(f"{source}: marks are among {sorted(MARKS)}, not {marks}")
    return marks


def main(folder: str) -> None:
    """Print a line for each folder with modules or the typing marker."""
    root = Path(folder)
    listed: dict[str, list[str]] = {}
    for source in sorted(root.rglob("*.*")):
        _, _, ending = source.name.partition(".")
        if ending in ("pyx", "pyx.in"):
            item = ",".join([source.name, *marks_of(source)])
        elif ending in ("py", "typed"):
            item = source.name
        else:
            continue
        listed.setdefault(source.parent.relative_to(root.parent).as_posix(), []).append(item)
    for name, items in listed.items():
        print(f"{name}: {' '.join(items)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
