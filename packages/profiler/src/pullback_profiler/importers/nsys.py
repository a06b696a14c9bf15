"""Importer of Nsight Systems recordings of a program that ran inside ``emit_nvtx``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from pullback_profiler.events.event_list import EventList
from pullback_profiler.events.function_event import FunctionEvent
from pullback_profiler.importers.trace_file import Names, TraceFile, microseconds

_RANGES = "NVTX_EVENTS"
_CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"  # also the driver's
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_PUSH_POP = 59  # Nsight's number of an event that is a pushed and popped range
_TID_BITS = 24  # of a thread's global number; the rest is its process


class _Range(NamedTuple):
    """A range; times in nanoseconds."""

    start: int
    end: int
    text: str


class _Kernel(NamedTuple):
    """A kernel, with the nanosecond in which the call that launched it began."""

    launched: int
    name: str
    device: int
    duration_us: float


def load_nsys(path: str | os.PathLike[str]) -> EventList:
    """Return an event for each NVTX range in an SQLite export of Nsight Systems.

    The file comes from ``nsys profile --trace=nvtx,cuda -o NAME python PROGRAM`` and then
    ``nsys export --type=sqlite NAME.nsys-rep``. Pushed and popped ranges of all domains are read,
    as events of their thread; times are in microseconds after the first range's start. A kernel
    belongs to the innermost range of its thread in which its launch began. Left out are ranges of
    which the start or the end was not recorded, and kernels that were launched outside of ranges or
    by no recorded call.

    Raises: FileNotFoundError; ValueError for a file that is damaged or has no table of ranges.

    >>> load_nsys("missing.sqlite")
    Traceback (most recent call last):
        ...
    FileNotFoundError: there is no trace file 'missing.sqlite'
    """
    with TraceFile(path) as trace:
        names = Names(trace, "StringIds", "id", "value")
        threads = _read_ranges(trace, names)
        kernels = _read_kernels(trace, names)
    device = "cuda" if kernels else None
    origin = min((ranges[0].start for ranges in threads.values()), default=0)
    events: list[FunctionEvent] = []
    for number, (thread, ranges) in enumerate(threads.items(), 1):
        first = len(events)
        for start, end, text in ranges:
            span = microseconds(trace, f"the range {text!r}", start, end, origin)
            events.append(FunctionEvent(len(events), text, number, *span, use_device=device))
        _append_kernels(zip(ranges, events[first:]), kernels.get(thread, []))
    events.sort(key=lambda event: (event.time_range.start, -event.time_range.end))
    found = EventList(events, use_device=device)
    found.build_tree()
    return found


def _read_ranges(trace: TraceFile, names: Names) -> dict[int, list[_Range]]:
    """Return the ranges of each thread, threads and ranges in order, outer ranges first."""
    if not trace.columns(_RANGES):
        raise trace.error(
            f"it is no SQLite export that holds NVTX ranges (there is no table {_RANGES}): record "
            "with 'nsys profile --trace=nvtx,cuda' what runs inside emit_nvtx(), and export it "
            "with 'nsys export --type=sqlite'"
        )
    threads: dict[int, list[_Range]] = {}
    rows = trace.rows(
        _RANGES,
        {"start": int | None, "end": int | None, "eventType": int, "globalTid": int | None},
        text=str | None,
        textId=int | None,
    )
    for start, end, _, thread, text, number in sorted(
        (row for row in rows if row[2] == _PUSH_POP and None not in row[:2]),
        key=lambda row: (row[0], -row[1]),
    ):
        if text is None:
            text = "" if number is None else names[number]
        threads.setdefault(thread, []).append(_Range(start, end, text))
    return threads


def _read_kernels(trace: TraceFile, names: Names) -> dict[int, list[_Kernel]]:
    """Return the kernels that each thread launched, in the order of their launches."""
    columns = trace.columns(_KERNELS)
    if not columns or not trace.columns(_CALLS):
        return {}
    several = "globalPid" in columns  # correlation numbers are those of a process
    calls: dict[tuple[int, int], tuple[int, int]] = {}
    wanted = {"start": int, "globalTid": int | None, "correlationId": int | None}
    rows = (row for row in trace.rows(_CALLS, wanted) if None not in row)
    for start, thread, correlation in sorted(rows):
        process = thread >> _TID_BITS if several else 0
        calls.setdefault((process, correlation), (start, thread))
    threads: dict[int, list[_Kernel]] = {}
    for start, end, correlation, short, process, device, full in trace.rows(
        _KERNELS,
        {"start": int, "end": int, "correlationId": int, "shortName": int},
        globalPid=int,
        deviceId=int,
        demangledName=int,
    ):
        name = names[short if full is None else full]
        _, duration = microseconds(trace, f"the kernel {name!r}", start, end, start)
        call = calls.get((process >> _TID_BITS if several else 0, correlation))
        if call is not None:
            launched, thread = call
            kernel = _Kernel(launched, name, device or 0, duration)
            threads.setdefault(thread, []).append(kernel)
    for kernels in threads.values():
        kernels.sort(key=lambda kernel: kernel.launched)
    return threads


def _append_kernels(ranges: Iterable[tuple[_Range, FunctionEvent]], kernels: list[_Kernel]) -> None:
    """Append each kernel to the event of the innermost range in which it was launched.

    Both are in order. Ranges of two domains may overlap in part: the later one counts as inner.
    """
    coming = iter(ranges)
    following = next(coming, None)
    around: list[tuple[_Range, FunctionEvent]] = []
    for kernel in kernels:
        while following is not None and following[0].start <= kernel.launched:
            while around and around[-1][0].end <= following[0].start:
                around.pop()
            around.append(following)
            following = next(coming, None)
        for span, event in reversed(around):
            if kernel.launched <= span.end:
                event.append_kernel(kernel.name, kernel.device, kernel.duration_us)
                break
