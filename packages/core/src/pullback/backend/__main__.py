"""``python -m pullback.backend``: write the package of a new backend, examine one, explain an op.

python -m pullback.backend new NAME                  # a package that adds a device, ready to run
python -m pullback.backend doctor NAME               # what a device does and what it lacks
python -m pullback.backend explain OP --device NAME  # how an op runs there
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pullback

TEMPLATES = Path(__file__).parent / "templates.txt"
TAKEN = ("cpu", "cuda", "meta", "ref")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns 0, or 1 with a message on stderr."""
    parser = argparse.ArgumentParser(prog="python -m pullback.backend")
    commands = parser.add_subparsers(dest="command", required=True)
    new = commands.add_parser("new", help="write a package that adds a device")
    new.add_argument("name", help="the device type, for example 'mine'")
    new.add_argument(
        "--into",
        type=Path,
        metavar="FOLDER",
        help="the folder to make; pullback-NAME if it is not given",
    )
    new.add_argument(
        "--array-api",
        metavar="LIBRARY",
        help="take memory and kernels of a module with the array API standard, such as cupy",
    )
    explain = commands.add_parser("explain", help="print how an op runs on a device")
    explain.add_argument("op")
    explain.add_argument("--device")
    doctor = commands.add_parser("doctor", help="examine a device: what works, what to add first")
    doctor.add_argument("device", help="the device, for example 'mine' or 'mine:1'")
    doctor.add_argument("--json", action="store_true", help="print the report as JSON")
    given = parser.parse_args(arguments)
    try:
        if given.command == "doctor":
            from pullback.backend.doctor import main as examine

            return examine(given.device, given.json)
        if given.command == "explain":
            print(pullback.backend.explain(given.op, given.device))
            return 0
        folder = given.into or Path(f"pullback-{given.name}")
        for path in write_package(given.name, folder, given.array_api):
            print(path)
    except (AttributeError, OSError, RuntimeError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    print(f"\nNow: cd {folder} && python -m pip install tox && python -m tox")
    return 0


def write_package(name: str, folder: Path, library: str | None = None) -> list[Path]:
    """Write the files of a backend package into a new folder and return their paths.

    ``library``: the module of an array library that gives memory and kernels.
    Raises: ValueError for a name that no device can have; FileExistsError for a folder with files.
    """
    if not name.isidentifier() or not name.isascii() or name != name.lower():
        raise ValueError(f"{name!r} is no name for a device: use lower-case letters, digits and _")
    if name in TAKEN:
        raise ValueError(f"the device {name!r} exists already")
    if library is not None and not all(part.isidentifier() for part in library.split(".")):
        raise ValueError(f"{library!r} is no name of a module")
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty")
    written = []
    for path, text in templates(name, library):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        written.append(target)
    return written


def templates(name: str, library: str | None = None) -> list[tuple[str, str]]:
    """Return path and text of each file, with the names filled in.

    The part of a file that is for an array library is marked ``(library)`` behind its path.
    """
    text = TEMPLATES.read_text(encoding="utf-8")
    text = text.replace("@NAME@", name).replace("@VERSION@", pullback.__version__)
    text = text.replace("@LIBRARY@", library or "")
    files = {}
    for part in text.split("\n==> ")[1:]:
        path, _, body = part.partition(" <==\n")
        path, _, kind = path.partition(" ")
        if kind == ("(library)" if library is None else "(memory)"):
            continue
        files[path] = body.rstrip("\n") + "\n"
    return list(files.items())


if __name__ == "__main__":
    sys.exit(main())
