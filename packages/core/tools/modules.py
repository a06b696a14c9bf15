"""List the compiled modules of the core for meson: ``python modules.py src/pullback``.

Each line has a folder, a name, and ``small`` or ``fast``. A module off the hot path of ops has
``# build: small`` as its first line: compiled for size, it is a fifth smaller.
"""

from __future__ import annotations

import sys
from pathlib import Path

SMALL = "# build: small\n"


def main(folder: str) -> None:
    """Print a line for each compiled module."""
    root = Path(folder)
    for source in sorted(root.rglob("*.pyx")):
        small = source.read_text(encoding="utf-8").startswith(SMALL)
        folder_name = source.parent.relative_to(root).as_posix()
        print(folder_name, source.stem, "small" if small else "fast")


if __name__ == "__main__":
    main(*sys.argv[1:])
