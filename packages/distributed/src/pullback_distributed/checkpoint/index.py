"""The index of a checkpoint: which part of which tensor is in which file, and plain values."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from pullback_distributed.checkpoint.boxes import Box, flaw
from pullback_distributed.checkpoint.entries import Path, Step, decode, dtype_of

INDEX = "index.json"
FORMAT = "pullback.distributed.checkpoint"
VERSION = 1


class Part(NamedTuple):
    """A part of a tensor: the file it is in, its name there, and its place in the tensor."""

    file: str
    key: str
    box: Box


@dataclass
class TensorEntry:
    """A tensor of a checkpoint; ``dtype`` is a name such as ``float32``."""

    path: Path
    shape: tuple[int, ...]
    dtype: str
    parts: list[Part] = field(default_factory=list)


@dataclass
class ValueEntry:
    """A plain value of a checkpoint, as ``encode`` returns it."""

    path: Path
    value: Any


Entry = TensorEntry | ValueEntry


@dataclass
class Index:
    """All of a checkpoint but the values of tensors.

    ``save`` is a text that all files of one save have in common; ``files`` has their sizes in
    bytes.
    """

    save: str
    files: dict[str, int]
    entries: dict[str, Entry]

    def text(self) -> str:
        """Return the index as JSON."""
        listed: dict[str, Any] = {}
        for name, entry in self.entries.items():
            path = [list(step) if isinstance(step, tuple) else step for step in entry.path]
            if isinstance(entry, ValueEntry):
                listed[name] = {"path": path, "value": entry.value}
                continue
            parts = [
                {"file": p.file, "key": p.key, "offsets": p.box.offsets, "sizes": p.box.sizes}
                for p in entry.parts
            ]
            listed[name] = {
                "path": path,
                "shape": entry.shape,
                "dtype": entry.dtype,
                "parts": parts,
            }
        return json.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                "save": self.save,
                "files": self.files,
                "entries": listed,
            },
            allow_nan=False,
            separators=(",", ":"),
        )


def _numbers(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise ValueError(f"expected a list of ints, but got {values!r}")
    return tuple(values)


def _path(steps: Any) -> Path:
    found: list[Step] = []
    for step in steps:
        if not isinstance(step, (str, int)):
            step = (int(step[0]),)
        found.append(step)
    return tuple(found)


def _entry(found: Any, files: dict[str, int]) -> Entry:
    path = _path(found["path"])
    if "value" in found:
        decode(found["value"])
        return ValueEntry(path, found["value"])
    dtype_of(found["dtype"])
    parts = []
    for part in found["parts"]:
        if part["file"] not in files:
            raise ValueError(f"the file {part['file']!r} is not listed")
        box = Box(_numbers(part["offsets"]), _numbers(part["sizes"]))
        parts.append(Part(part["file"], part["key"], box))
    shape = _numbers(found["shape"])
    problem = flaw(shape, [part.box for part in parts])
    if problem is not None:
        raise ValueError(problem)
    return TensorEntry(path, shape, found["dtype"], parts)


def _is_file_name(name: str) -> bool:
    return name == FilePath(name).name and name not in ("", ".", "..")


def read_index(caller: str, folder: str) -> Index:
    """Return the index of a checkpoint's folder.

    Raises: FileNotFoundError if there is none; RuntimeError that names the file and the entry if it
    is damaged or incomplete.
    """
    place = FilePath(folder) / INDEX
    try:
        text = place.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(
            f"{caller}: there is no checkpoint at {folder}: {place} does not exist"
        ) from None
    except UnicodeDecodeError as error:
        raise RuntimeError(f"{caller}: {place} is damaged: {error}") from None
    name = ""
    try:
        found = json.loads(text)
        if found.get("format") != FORMAT:
            raise ValueError(f"its format is {found.get('format')!r}, not {FORMAT!r}")
        if found["version"] != VERSION:
            raise ValueError(f"its version is {found['version']!r}, but this package reads 1")
        files = dict(found["files"])
        for file, size in files.items():
            if not _is_file_name(file) or type(size) is not int:
                raise ValueError(f"{file!r} is no file of {size!r} bytes")
        entries = {}
        for name, entry in found["entries"].items():
            entries[name] = _entry(entry, files)
        return Index(str(found["save"]), files, entries)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        what = f"has no {error}" if isinstance(error, KeyError) else str(error)
        where = f" at the entry {name!r}" if name else ""
        raise RuntimeError(f"{caller}: {place} is damaged or incomplete{where}: {what}") from None


def is_whole(folder: str) -> bool:
    """Return whether a folder has an index, and all files that it names with their sizes."""
    try:
        index = read_index("is_whole", folder)
        return all(
            os.path.getsize(os.path.join(folder, file)) == size
            for file, size in index.files.items()
        )
    except (OSError, RuntimeError):
        return False
