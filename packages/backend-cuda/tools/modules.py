"""List the files of this package for meson: ``python modules.py src/pullback_cuda``.

Each line has a folder and its files: ``pullback_cuda/kernels/sorting: sort.cu sort.h sort.pyx``.
"""

from __future__ import annotations

import sys
from pathlib import Path

ENDINGS = (".pyx", ".py", ".typed", ".cu", ".cuh", ".h")


def main(folder: str) -> None:
    """Print a line for each folder with modules, kernels, headers or the typing marker."""
    root = Path(folder)
    listed: dict[str, list[str]] = {}
    for source in sorted(root.rglob("*.*")):
        if source.suffix in ENDINGS:
            place = source.parent.relative_to(root.parent).as_posix()
            listed.setdefault(place, []).append(source.name)
    for name, files in listed.items():
        print(f"{name}: {' '.join(files)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
