"""List the compiled modules of the core for meson: ``python modules.py src/pullback``.

Each line has a folder and its modules: ``_c/base: errors,small sizes``. A module that no op goes
through has ``# build: small`` as its first line: compiled for size, it is a fifth smaller.
"""

from __future__ import annotations

import sys
from pathlib import Path

SMALL = "# build: small\n"


def main(folder: str) -> None:
    """Print a line for each folder with compiled modules."""
    root = Path(folder)
    modules: dict[str, list[str]] = {}
    for source in sorted(root.rglob("*.pyx")):
        small = source.read_text(encoding="utf-8").startswith(SMALL)
        name = f"{source.stem},small" if small else source.stem
        modules.setdefault(source.parent.relative_to(root).as_posix(), []).append(name)
    for name, names in modules.items():
        print(f"{name}: {' '.join(names)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
