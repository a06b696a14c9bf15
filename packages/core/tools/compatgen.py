"""Write the page that compares Pullback's public names with torch's.

    python compatgen.py --docs DIR     # DIR/torch-compat.md; needs pullback, not torch
    python compatgen.py --reasons      # what errors say of names that are left out
    python compatgen.py --take         # compat/names.json anew, from the torch that is installed

``compat/names.json`` has torch's names. ``compat/notes.ini`` has the names that are left out with
the reason, those that differ, and ours; the names that exist come from the installed package.
"""

from __future__ import annotations

import argparse
import configparser
import dataclasses
import fnmatch
import importlib
import json
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "compat"
NAMES = FOLDER / "names.json"
NOTES = FOLDER / "notes.ini"
REASONS = FOLDER.parents[1] / "src/pullback/_help/left_out.json"
MEMBERS = REASONS.with_name("left_out_members.py")

MODULES = (
    *("torch.autograd", "torch.autograd.graph", "torch.autograd.grad_mode"),
    *("torch.autograd.anomaly_mode", "torch.autograd.function", "torch.autograd.functional"),
    *("torch.autograd.forward_ad", "torch.autograd.gradcheck", "torch.autograd.variable"),
    *("torch.autograd.profiler", "torch.func", "torch.utils.checkpoint", "torch.utils.hooks"),
    *("torch.linalg", "torch.fft", "torch.special", "torch.signal.windows", "torch.testing"),
    *("torch.library", "torch.random", "torch.cuda", "torch.utils", "torch.utils.dlpack"),
    *("torch.nn.functional", "torch.sparse"),
    *("torch.nn", "torch.nn.parameter", "torch.nn.init", "torch.nn.attention"),
    "torch.nn.attention.flex_attention",
    *("torch.nn.utils", "torch.nn.utils.rnn", "torch.nn.utils.parametrize"),
    *("torch.nn.utils.parametrizations", "torch.nn.utils.stateless"),
    *("torch.amp", "torch.amp.autocast_mode", "torch.amp.grad_scaler", "torch.cuda.amp"),
    *("torch.optim", "torch.optim.lr_scheduler", "torch.optim.swa_utils"),
    *("torch.utils.data", "torch.serialization", "torch.overrides", "torch.distributed"),
)
APART = ("torch.distributed",)  # their modules are those of another package
CLASSES = (
    "torch.Tensor",
    *("torch.autograd.Function", "torch.autograd.function.BackwardCFunction"),
    *("torch.autograd.graph.Node", "torch.utils.hooks.RemovableHandle"),
    *("torch.nn.Module", "torch.optim.Optimizer", "torch.optim.lr_scheduler.LRScheduler"),
    *("torch.utils.data.DataLoader", "torch.UntypedStorage"),
)
# Classes of torch's C++ part that programs use; the others belong to its compilers.
CLASSES_IN_C = {
    *("Event", "Generator", "Size", "Stream", "device", "dtype", "finfo", "iinfo", "layout"),
    *("memory_format", "qscheme", "DisableTorchFunction", "DisableTorchFunctionSubclass"),
}
KINDS = ("left out", "differs", "ours")
PAGE = """\
# Torch's names

Of the {names} public names of these parts of torch {version},
{present} are here, {differs} of them with a difference that is worth a line, and
{left_out} are left out, each with the reason. A name that two modules have counts twice. A name
without a note behaves as in torch; messages of errors say more in places. [Operations](index.md)
have a table of their own.

*Written by `python -m nox -s gen` from `packages/core/tools/compat/`.*

| torch | names | here | of them differ | left out | ours alone |
| --- | --- | --- | --- | --- | --- |
{totals}
{sections}"""


@dataclasses.dataclass(frozen=True)
class Row:
    """One name, its status, and the reason or difference in one line."""

    name: str
    status: str  # present, differs, left out, ours
    note: str = ""


# -- torch's names ---------------------------------------------------------------------------------


def is_own(module: Any, value: Any) -> bool:
    """Return True for a member that is defined in the module, or in C."""
    if isinstance(value, types.ModuleType):
        return value.__name__.startswith(module.__name__ + ".")
    home = getattr(value, "__module__", None)
    if home is None:
        return isinstance(value, str)
    return bool(home == module.__name__ or home == "torch._C" or home.startswith("torch._C."))


def comes_from(path: str, value: Any) -> bool:
    """Return True for a class, function or module of the package at a path."""
    home = value.__name__ if isinstance(value, types.ModuleType) else value
    if not isinstance(home, str):
        home = getattr(value, "__module__", None) or ""
    public = not getattr(value, "__name__", "_").rpartition(".")[2].startswith("_")
    return public and (home == path or home.startswith(path + "."))


def is_op(value: Any) -> bool:
    """Return True for a function that is written in C."""
    return isinstance(value, types.BuiltinFunctionType)


def is_use(torch: Any, name: str, value: Any) -> bool:
    """Return True for a name of torch itself that programs use."""
    if isinstance(value, types.ModuleType):
        return bool(value.__name__.startswith("torch.")) and name != "_C"
    if isinstance(value, type) and hasattr(torch._C, name):
        return name in CLASSES_IN_C or name.endswith(("Tensor", "Storage"))
    return getattr(value, "__module__", None) not in ("typing", "typing_extensions", "functools")


def members_of(owner: type) -> list[str]:
    """Return the public members that a class adds to those of objects and of its node class."""
    if owner.__name__ == "Function":
        classes = [base for base in owner.__mro__ if base.__module__ == owner.__module__]
        found = {name for base in classes if base.__name__ != "FunctionCtx" for name in vars(base)}
        found.add("apply")
    else:
        found = set(dir(owner)) - set(dir(object))
    return sorted(name for name in found if not name.startswith("_"))


def torch_names() -> dict[str, Any]:
    """Return the names of the installed torch, in the form of ``names.json``."""
    torch = importlib.import_module("torch")
    made: dict[str, dict[str, list[str]]] = {}
    everything = {name: getattr(torch, name) for name in dir(torch) if not name.startswith("_")}
    made["torch"] = {
        "names": [name for name in everything if is_use(torch, name, everything[name])]
    }
    for path in MODULES:
        module = importlib.import_module(path)
        others = {name: getattr(module, name) for name in dir(module)}
        if not hasattr(module, "__all__"):
            made[path] = {
                "names": [
                    name
                    for name, value in others.items()
                    if (comes_from(path, value) or (not name.startswith("_") and is_op(value)))
                    and not (path in APART and isinstance(value, types.ModuleType))
                ]
            }
            continue
        names = sorted(module.__all__)
        made[path] = {"names": names}
        made[path]["not in __all__"] = [
            name
            for name, value in others.items()
            if not name.startswith("_") and name not in names and is_own(module, value)
        ]
    for path in CLASSES:
        made[path] = {"names": members_of(find(path))}
    return {
        "torch": torch.__version__.partition("+")[0],
        "how": "Of a module: __all__, and what else dir() shows that is the module's own or comes "
        "from C. Of a class: its public members. Of torch: what dir() shows but the classes of its "
        "compilers, modules of Python, and names for annotations.",
        "sections": made,
    }


# -- their status ----------------------------------------------------------------------------------


def find(path: str) -> Any:
    """Return the module, or the class in a module, of a dotted name.

    Raises: ImportError or AttributeError when there is none.
    """
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


def has(owner: Any, name: str) -> bool:
    """Return True if a name can be used; those of other packages only if these are installed."""
    try:
        getattr(owner, name)
    except (AttributeError, ImportError):
        return False
    return True


def read_notes(path: Path = NOTES) -> dict[str, dict[str, Row]]:
    """Return the notes by section and name.

    Raises: ValueError for a note of no known kind, or a second one of the same name.
    """
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(path.read_text())
    found: dict[str, dict[str, Row]] = {}
    for section in parser.sections():
        rows = found.setdefault(section, {})
        for names, text in parser[section].items():
            kind, _, note = " ".join(text.split()).partition(": ")
            if kind not in KINDS or not note:
                raise ValueError(f"[{section}] {names}: begin with one of {', '.join(KINDS)}")
            for name in names.split():
                if name in rows:
                    raise ValueError(f"[{section}] {name} has two notes")
                rows[name] = Row(name, kind, note)
    return found


def compare(data: dict[str, Any], notes: dict[str, dict[str, Row]]) -> dict[str, list[Row]]:
    """Return the rows of every section.

    Raises: ValueError where names, notes and the package do not agree.
    """
    made = {}
    wrong = [f"[{section}] is no section" for section in notes if section not in data["sections"]]
    for path, lists in data["sections"].items():
        section = dict(notes.get(path, {}))
        patterns = {name: section.pop(name) for name in list(section) if "*" in name}
        owner = find(path.replace("torch", "pullback", 1))
        theirs = [name for names in lists.values() for name in names]
        rows = []
        for pattern in patterns.values():
            matches = [name for name in theirs if fnmatch.fnmatchcase(name, pattern.name)]
            absent = [name for name in matches if name not in section and not has(owner, name)]
            section.update({name: Row(name, pattern.status, pattern.note) for name in absent})
            wrong += [] if absent else [f"{path}.{pattern.name} matches no name that is missing"]
        for name in sorted(theirs, key=lambda name: (name.lower(), name)):
            row = section.get(name, Row(name, "present"))
            if row.status == "ours":
                wrong.append(f"{path}.{name} is not ours alone: torch has it")
            elif has(owner, name) == (row.status == "left out"):
                said = "is there" if row.status == "left out" else "is missing, without a reason"
                wrong.append(f"{path}.{name} {said}")
            rows.append(row)
        for name in sorted(set(section) - set(theirs)):
            if section[name].status != "ours" or not has(owner, name):
                wrong.append(f"{path}.{name}: neither torch nor pullback has it")
            rows.append(section[name])
        made[path] = rows
    if wrong:
        raise ValueError("compat/notes.ini: " + "; ".join(wrong))
    return made


# -- the page --------------------------------------------------------------------------------------


def count(rows: list[Row]) -> tuple[int, int, int, int, int]:
    """Return how many names torch has, are here, are here but differ, are left out, are ours."""
    kinds = [row.status for row in rows]
    ours, left_out = kinds.count("ours"), kinds.count("left out")
    names = len(rows) - ours
    return names, names - left_out, kinds.count("differs"), left_out, ours


def table(path: str, rows: list[Row]) -> Iterator[str]:
    """Yield one section in Markdown."""
    yield ""
    yield f"## `{path}`"
    yield ""
    yield "| name | here | note |"
    yield "| --- | --- | --- |"
    for row in rows:
        here = {"present": "yes", "differs": "yes, differs", "ours": "ours alone"}
        note = row.note.replace("|", "\\|")
        yield f"| `{row.name}` | {here.get(row.status, row.status)} | {note} |".replace("  |", " |")


def make_page(data: dict[str, Any], sections: dict[str, list[Row]]) -> str:
    """Return the page."""
    counts = {path: count(rows) for path, rows in sections.items()}
    total = tuple(map(sum, zip(*counts.values())))
    lines = [
        f"| `{path}` | " + " | ".join(map(str, numbers)) + " |" for path, numbers in counts.items()
    ]
    lines.append("| **all** | " + " | ".join(f"**{number}**" for number in total) + " |")
    tables = [line for path, rows in sections.items() for line in table(path, rows)]
    return PAGE.format(
        version=data["torch"],
        names=total[0],
        present=total[1],
        differs=total[2],
        left_out=total[3],
        totals="\n".join(lines),
        sections="\n".join(tables) + "\n",
    )


def reasons_of(sections: dict[str, list[Row]]) -> dict[str, dict[str, str]]:
    """Return why names are left out, by section and name."""
    found = {
        path: {row.name: row.note for row in rows if row.status == "left out"}
        for path, rows in sections.items()
    }
    return {path: rows for path, rows in found.items() if rows}


def make_members(reasons: dict[str, dict[str, str]]) -> str:
    """Return the module that says what torch's classes have and ours lack."""
    lines = [
        '"""Members of torch\'s classes that ours lack; tools/compatgen.py writes this file."""'
    ]
    lines += ["", "MEMBERS = {"]
    for path in CLASSES:
        if path in reasons:
            lines.append(f'    "{path}": (')
            lines += [f'        "{name}",' for name in reasons[path]]
            lines.append("    ),")
    return "\n".join((*lines, "}", ""))


# -- command line ----------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--docs", metavar="DIR", type=Path, help="write DIR/torch-compat.md")
    parser.add_argument("--take", action="store_true", help="write compat/names.json; needs torch")
    parser.add_argument("--reasons", action="store_true", help="write _help/left_out.json")
    given = parser.parse_args(arguments)
    if not (given.docs or given.take or given.reasons):
        parser.error("say what to write: --docs, --reasons or --take")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated attributes are names too
        if given.take:
            NAMES.write_text(json.dumps(torch_names(), indent=1) + "\n")
        if given.docs or given.reasons:
            data = json.loads(NAMES.read_text())
            sections = compare(data, read_notes())
        if given.docs:
            (given.docs / "torch-compat.md").write_text(make_page(data, sections))
        if given.reasons:
            reasons = reasons_of(sections)
            REASONS.write_text(json.dumps(reasons, indent=0) + "\n")
            MEMBERS.write_text(make_members(reasons))
    return 0


if __name__ == "__main__":
    sys.exit(main())
