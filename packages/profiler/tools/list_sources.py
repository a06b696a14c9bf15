"""Print what the build needs to know of a source folder, one name a line, relative to the folder.

    python list_sources.py modules SOURCE   # compiled modules, without suffix
    python list_sources.py caches SOURCE    # the `__pycache__` folders, whether they exist or not
    python list_sources.py unshipped SOURCE # files that the wheel leaves out

Wheels hold Python modules, the typing marker and the pages.
"""

import sys
from pathlib import Path

SHIPPED = {".py", ".typed", ".html", ".css", ".js"}


def names(kind: str, source: Path) -> list[str]:
    """Return the names of a kind, sorted."""
    files = [path for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    if kind == "modules":
        found = {path.with_suffix("") for path in files if path.suffix == ".pyx"}
    elif kind == "caches":  # an editable install is read when they exist
        found = {path.parent / "__pycache__" for path in files if path.suffix == ".py"}
    else:
        found = {path for path in files if path.suffix not in SHIPPED}
    return sorted(path.relative_to(source).as_posix() for path in found)


if __name__ == "__main__":
    print("\n".join(names(sys.argv[1], Path(sys.argv[2]))))
