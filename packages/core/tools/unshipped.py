"""Print the files or folders of a source folder that the wheel leaves out, for the install rules.

    python unshipped.py folders SOURCE
    python unshipped.py files SOURCE

Wheels have Python modules and their data, stubs, the typing marker and the headers in ``include``.
Everything is shipped unless it is named here, so a new module or folder cannot be forgotten.
"""

import os
import sys

SHIPPED = (".py", ".pyi", ".json", "py.typed", "templates.txt")
CONTRACT = "include"  # the folder of the headers for plugins; other headers are the core's own


def is_shipped(path: str) -> bool:
    """Return whether the wheel has the file, named relative to the source folder."""
    if path.startswith(CONTRACT + os.sep):
        return path.endswith((".h", ".pxd"))
    return path.endswith(SHIPPED)


def unshipped(source: str) -> tuple[list[str], list[str]]:
    """Return the folders and the files that the wheel leaves out, relative to the source folder."""
    caches, files = [], []
    for folder, folders, names in os.walk(source):
        inside = os.path.relpath(folder, source)
        # Named although it may not exist yet: an editable install is read long after this.
        caches.append(os.path.normpath(os.path.join(inside, "__pycache__")))
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        paths = (os.path.normpath(os.path.join(inside, name)) for name in sorted(names))
        files += [path for path in paths if not is_shipped(path)]
    return caches, files


def main() -> None:
    """Print one list, a line for each."""
    kind, source = sys.argv[1:]
    caches, files = unshipped(source)
    print("\n".join(path.replace(os.sep, "/") for path in (caches if kind == "folders" else files)))


if __name__ == "__main__":
    main()
