"""Who writes what: every part once, about as many bytes on each rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pullback_distributed.checkpoint.boxes import Box, flaw, whole
from pullback_distributed.checkpoint.entries import conflict, dtype_of
from pullback_distributed.checkpoint.index import Entry, Part, TensorEntry, ValueEntry

SMALLEST_CUT = 1 << 18  # bytes up to which a tensor that several ranks have is not cut
CUTS = 4  # into how many parts what a rank writes can be dealt out


class Listed(NamedTuple):
    """What a rank has under a name, and which part of it if it is a tensor."""

    entry: Entry
    box: Box | None


class Piece(NamedTuple):
    """A part that a rank writes, and its name in the rank's file."""

    name: str
    key: str
    box: Box


class Plan(NamedTuple):
    """The entries of the index, and what each rank writes."""

    entries: dict[str, Entry]
    pieces: list[list[Piece]]


class _Task(NamedTuple):
    name: str
    box: Box
    nbytes: int
    holders: list[int]


def file_of(rank: int) -> str:
    """Return the name of the file that a rank writes."""
    return f"rank-{rank:05d}.safetensors"


def _difference(one: Entry, other: Entry) -> str | None:
    """Return how two ranks differ in what a name stands for; else None."""
    if one.path != other.path:
        return f"is at {list(one.path)} on one rank and at {list(other.path)} on another"
    if isinstance(one, TensorEntry) and isinstance(other, TensorEntry):
        if (one.shape, one.dtype) == (other.shape, other.dtype):
            return None
        return (
            f"differs: {one.dtype} of shape {one.shape} on one rank, {other.dtype} of shape "
            f"{other.shape} on another"
        )
    if isinstance(one, ValueEntry) and isinstance(other, ValueEntry):
        if repr(one.value) == repr(other.value):
            return None
        return (
            f"is {one.value!r} on one rank and {other.value!r} on another: give each rank a name "
            "of its own, or all one value"
        )
    return "is a tensor on one rank and a plain value on another"


def _merged(listings: Sequence[dict[str, Listed]]) -> dict[str, Entry]:
    """Return the entries of all ranks by name.

    Raises: ValueError where ranks differ in what a name stands for.
    """
    entries: dict[str, Entry] = {}
    first: dict[str, int] = {}
    for rank, listing in enumerate(listings):
        for name, (entry, _) in listing.items():
            known = entries.setdefault(name, entry)
            if first.setdefault(name, rank) == rank:
                continue
            problem = _difference(known, entry)
            if problem is not None:
                raise ValueError(f"save: {name!r} {problem} (ranks {first[name]} and {rank})")
    _drop_filled(entries)
    problem = conflict(entry.path for entry in entries.values())
    if problem is not None:
        raise ValueError(f"save: {problem}")
    return {
        name: TensorEntry(entry.path, entry.shape, entry.dtype)
        if isinstance(entry, TensorEntry)
        else entry
        for name, entry in entries.items()
    }


def _drop_filled(entries: dict[str, Entry]) -> None:
    """Leave out a dict that is empty on one rank where another has entries in it."""
    inner = {e.path[:depth] for e in entries.values() for depth in range(len(e.path))}
    for name, entry in list(entries.items()):
        if isinstance(entry, ValueEntry) and entry.value == {"dict": []} and entry.path in inner:
            del entries[name]


def _cut(box: Box, count: int) -> list[Box]:
    """Return about ``count`` parts of a box, cut along its first dim that is longer than one."""
    dim = next((k for k, size in enumerate(box.sizes) if size > 1), None)
    if dim is None:
        return [box]
    step = math.ceil(box.sizes[dim] / count)
    parts = []
    for start in range(0, box.sizes[dim], step):
        offsets, sizes = list(box.offsets), list(box.sizes)
        offsets[dim] += start
        sizes[dim] = min(step, box.sizes[dim] - start)
        parts.append(Box(tuple(offsets), tuple(sizes)))
    return parts


def _tasks(entries: dict[str, Entry], listings: Sequence[dict[str, Listed]]) -> list[_Task]:
    """Return all parts that there are, each once, with the ranks that have it."""
    holders: dict[tuple[str, Box], list[int]] = {}
    for rank, listing in enumerate(listings):
        for name, (_, box) in listing.items():
            if box is not None and box.numel():
                holders.setdefault((name, box), []).append(rank)
    boxes: dict[str, list[Box]] = {}
    for name, box in holders:
        boxes.setdefault(name, []).append(box)
    found = []
    for name, entry in entries.items():
        if not isinstance(entry, TensorEntry):
            continue
        problem = flaw(entry.shape, boxes.get(name, []))
        if problem is not None:
            raise ValueError(f"save: the shards of {name!r} are not a whole tensor: {problem}")
        itemsize = dtype_of(entry.dtype).itemsize
        for box in boxes.get(name, []):
            found.append(_Task(name, box, box.numel() * itemsize, holders[name, box]))
    return found


def _spread(tasks: list[_Task], size: int) -> list[_Task]:
    """Cut what several ranks have and is a large part of a rank's fair share."""
    most = max(sum(task.nbytes for task in tasks) / (CUTS * size), SMALLEST_CUT)
    found = []
    for task in tasks:
        if len(task.holders) == 1 or task.nbytes <= most:
            found.append(task)
            continue
        for box in _cut(task.box, math.ceil(task.nbytes / most)):
            nbytes = task.nbytes // task.box.numel() * box.numel()
            found.append(_Task(task.name, box, nbytes, task.holders))
    return found


def make_plan(listings: Sequence[dict[str, Listed]]) -> Plan:
    """Return who writes what, the same on all ranks, from what each rank has.

    Raises: ValueError where ranks do not agree, or where shards are not a whole tensor.
    """
    entries = _merged(listings)
    tasks = _spread(_tasks(entries, listings), len(listings))
    load = [0] * len(listings)
    for task in tasks:
        if len(task.holders) == 1:
            load[task.holders[0]] += task.nbytes
    writers: dict[tuple[str, Box], int] = {}
    for task in sorted(tasks, key=lambda task: -task.nbytes):
        writer = min(task.holders, key=lambda rank: (load[rank], rank))
        writers[task.name, task.box] = writer
        if len(task.holders) > 1:
            load[writer] += task.nbytes
    pieces: list[list[Piece]] = [[] for _ in listings]
    taken: list[set[str]] = [{"__metadata__"} for _ in listings]  # the format's own name
    for task in tasks:
        entry, writer = entries[task.name], writers[task.name, task.box]
        assert isinstance(entry, TensorEntry)
        key = task.name if task.box == whole(entry.shape) else task.name + task.box.text()
        while key in taken[writer]:
            key += "'"
        taken[writer].add(key)
        pieces[writer].append(Piece(task.name, key, task.box))
        entry.parts.append(Part(file_of(writer), key, task.box))
    return Plan(entries, pieces)
