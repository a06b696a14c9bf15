"""The difference of two profiles that were written as traces: calls, time and memory by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from pullback_profiler.events.table import GAP, WIDTH, Column
from pullback_profiler.events.util import format_memory, format_time
from pullback_profiler.export.merged_trace import read_trace
from pullback_profiler.record.recording import MEMORY_EVENT_NAME

HOST = ("cpu_op", "user_annotation", "python_function")
SORT_KEYS = ("time", "calls", "memory")


class Totals(NamedTuple):
    """What the events of one name sum up to."""

    calls: int = 0
    self_time: float = 0.0  # microseconds outside of what is nested in them
    # Bytes that were allocated in them, and not in what is nested; None if it was not recorded.
    memory: int | None = 0

    def plus(self, calls: int, self_time: float, memory: int) -> Totals:
        """Return the sum with other numbers.

        >>> Totals(1, 2.0, 8).plus(1, 0.5, 0)
        Totals(calls=2, self_time=2.5, memory=8)
        """
        return Totals(self.calls + calls, self.self_time + self_time, (self.memory or 0) + memory)


class Change(NamedTuple):
    """The totals of one name in both profiles; ``on_device`` for kernels."""

    name: str
    on_device: bool
    before: Totals
    after: Totals

    def of(self, key: str) -> float:
        """Return how much calls, time or memory grew.

        >>> Change("add", False, Totals(1), Totals(3)).of("calls")
        2.0
        """
        field = "self_time" if key == "time" else key
        before, after = getattr(self.before, field), getattr(self.after, field)
        return 0.0 if before is None or after is None else float(after - before)


class TraceDiff(list[Change]):
    """The changes between two profiles, one for each name, with the largest first.

    ``str()`` is a table.

    >>> changes = TraceDiff([Change("add", False, Totals(1, 2.0), Totals(1, 3.0))])
    >>> print(str(changes).splitlines()[-1])
    Self CPU time total: 2.000us -> 3.000us (+50.00%)
    """

    def total(self, on_device: bool) -> tuple[float, float]:
        """Return the microseconds on the CPU or on devices, before and after.

        >>> TraceDiff([Change("add", False, Totals(1, 2.0), Totals(1, 3.0))]).total(False)
        (2.0, 3.0)
        """
        rows = [row for row in self if row.on_device == on_device]
        before, after = (
            [getattr(row, side).self_time for row in rows] for side in ("before", "after")
        )
        return sum(before), sum(after)

    def growth(self) -> float:
        """Return by how many percent time grew: of the CPU or of devices, whichever grew more.

        >>> TraceDiff([Change("add", False, Totals(1, 2.0), Totals(1, 3.0))]).growth()
        50.0
        """
        totals = (self.total(False), self.total(True))
        return max(_percent(before, after) for before, after in totals)

    def table(self, sort_by: str = "time", row_limit: int = 20) -> str:
        """Return the changes as a table, those of the largest absolute change first.

        ``sort_by`` is ``time``, ``calls`` or ``memory``; ``row_limit`` how many rows are shown, -1
        for all. Raises: ValueError for another ``sort_by``.

        >>> "# of Calls" in TraceDiff().table()
        True
        """
        if sort_by not in SORT_KEYS:
            raise ValueError(f"sort_by should be one of {', '.join(SORT_KEYS)}; got {sort_by!r}")
        rows = sorted(self, key=lambda row: abs(row.of(sort_by)), reverse=True)
        rows = rows if row_limit < 0 else rows[:row_limit]
        columns = list(_columns(rows))
        separator = "".join("-" * column.width + GAP for column in columns)
        lines = [separator, "".join(c.text(c.header) for c in columns), separator]
        lines += ["".join(c.text(c.cell(row)) for c in columns) for row in rows]
        return "".join(f"{line}\n" for line in [*lines, separator, *self._lines_of_totals()])

    def _lines_of_totals(self) -> Iterator[str]:
        for label, on_device in (("CPU", False), ("device", True)):
            before, after = self.total(on_device)
            if not on_device or before or after:
                yield (
                    f"Self {label} time total: {format_time(before)} -> {format_time(after)} "
                    f"({_percent(before, after):+.2f}%)"
                )

    def __str__(self) -> str:
        return self.table()


def diff_traces(before: str | os.PathLike[str], after: str | os.PathLike[str]) -> TraceDiff:
    """Return how one profile differs from another: calls, self time and memory by name.

    Both are files of ``export_chrome_trace``; those that end in ``.gz`` are read too. Names are
    those of ops, nodes, blocks and kernels; memory is there if it was recorded.
    Raises: OSError for a file that cannot be read; ValueError for one that is no profile.

    >>> import os, pullback, tempfile
    >>> from pullback_profiler import diff_traces, profile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     paths = [os.path.join(folder, name) for name in ("a.json", "b.json")]
    ...     for times, path in enumerate(paths, 1):
    ...         with profile() as p:
    ...             for _ in range(times):
    ...                 y = pullback.ones(2)
    ...         p.export_chrome_trace(path)
    ...     changes = diff_traces(*paths)
    >>> changes[0].name, changes[0].before.calls, changes[0].after.calls
    ('pullback::ones', 1, 2)
    """
    first, second = (_totals(path) for path in (before, after))
    changes = [
        Change(*key, *(found.get(key, _nothing(found)) for found in (first, second)))
        for key in dict.fromkeys([*first, *second])
    ]
    changes.sort(key=lambda change: abs(change.of("time")), reverse=True)
    return TraceDiff(changes)


def _nothing(found: dict[tuple[str, bool], Totals]) -> Totals:
    """Return the totals of a name that a profile does not have."""
    recorded = all(totals.memory is not None for totals in found.values())
    return Totals(memory=0 if recorded else None)


def _totals(path: str | os.PathLike[str]) -> dict[tuple[str, bool], Totals]:
    """Return the totals of a trace by name, and whether it is of work on a device."""
    lanes: dict[Any, list[dict[str, Any]]] = {}
    for entry in read_trace(path, plain=True)["traceEvents"]:
        if _is_counted(entry):
            lanes.setdefault((entry.get("pid"), entry.get("tid")), []).append(entry)
    found: dict[tuple[str, bool], Totals] = {}
    try:
        for lane in lanes.values():
            _add_lane(lane, found)
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{os.fspath(path)!r} is no profile: an event has no name or time ({error})"
        ) from error
    if not found:
        raise ValueError(f"{os.fspath(path)!r} is no profile: it has no event of an op")
    if not any(totals.memory for totals in found.values()):
        found = {key: totals._replace(memory=None) for key, totals in found.items()}
    return found


def _is_counted(entry: Any) -> bool:
    """Return True for an event with a duration, and for a change of memory."""
    if not isinstance(entry, dict):
        return False
    if entry.get("name") == MEMORY_EVENT_NAME:
        return entry.get("ph") == "i"
    return entry.get("ph") == "X" and entry.get("cat", "cpu_op") in (*HOST, "kernel")


def _on_device(entry: dict[str, Any]) -> bool:
    """Return True for a kernel; a plain trace has processes such as "CUDA functions"."""
    process = str(entry.get("pid"))
    plain = process.endswith(" functions") and process != "CPU functions"
    return plain or entry.get("cat") == "kernel"


def _add_lane(lane: Iterable[dict[str, Any]], found: dict[tuple[str, bool], Totals]) -> None:
    """Add the events of one thread, each without those that are nested in it."""
    inside: list[tuple[float, tuple[str, bool]]] = []  # when those around a point end, and keys
    for entry in sorted(lane, key=lambda entry: (entry["ts"], -entry.get("dur", 0.0))):
        start = entry["ts"]
        while inside and inside[-1][0] <= start:
            inside.pop()
        if entry["name"] == MEMORY_EVENT_NAME:
            nbytes = entry["args"]["Bytes"]
            key = inside[-1][1] if inside else (MEMORY_EVENT_NAME, False)
            if nbytes > 0:
                found[key] = found.get(key, Totals()).plus(0, 0.0, nbytes)
            continue
        duration, key = entry["dur"], (entry["name"], _on_device(entry))
        if inside:
            around = inside[-1][1]
            found[around] = found[around].plus(0, -duration, 0)
        found[key] = found.get(key, Totals()).plus(1, duration, 0)
        inside.append((start + duration, key))


def _percent(before: float, after: float) -> float:
    """Return by how many percent a number grew; from nothing it grows without bound."""
    if before == after:
        return 0.0
    return 100 * (after - before) / before if before else float("inf")


def _columns(rows: list[Change]) -> Iterator[Column]:
    names = [f"{row.name} (kernel)" if row.on_device else row.name for row in rows]
    width = max(map(len, names), default=0) + 4
    shown = dict(zip(map(id, rows), names))
    yield Column("Name", width, lambda row: shown[id(row)])

    def both(header: str, field: str, text: Callable[[Any], str]) -> Iterator[Column]:
        yield Column(header, WIDTH, lambda row: text(getattr(row.before, field)))
        yield Column("after", WIDTH, lambda row: text(getattr(row.after, field)))

    yield from both("# of Calls", "calls", str)
    yield from both("Self time", "self_time", format_time)
    yield Column(
        "change",
        WIDTH,
        lambda row: (
            ("+" if row.of("time") > 0 else "-" if row.of("time") < 0 else "")
            + format_time(abs(row.of("time")))
        ),
    )
    yield Column(
        "change %",
        WIDTH,
        lambda row: f"{_percent(row.before.self_time, row.after.self_time):+.2f}%",
    )
    if any(row.before.memory or row.after.memory for row in rows):
        yield from both("Memory", "memory", lambda n: "" if n is None else format_memory(n))
