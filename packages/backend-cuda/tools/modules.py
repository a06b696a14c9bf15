"""List the files of this package for meson: ``python modules.py src/pullback_cuda``.

Each line has a folder, a name and an ending.
"""

from __future__ import annotations

import sys
from pathlib import Path

ENDINGS = ("pyx", "py", "typed", "cu", "cuh", "h")


def main(folder: str) -> None:
    """Print a line for each module, kernel file and header, and one for the typing marker."""
    root = Path(folder)
    for source in sorted(root.rglob("*.*")):
        name, _, ending = source.name.partition(".")
        if ending in ENDINGS:
            print(source.parent.relative_to(root.parent).as_posix(), name, ending)


if __name__ == "__main__":
    main(*sys.argv[1:])
