"""Importer of nvprof recordings of a program that ran inside ``emit_nvtx``."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Hashable
from typing import NamedTuple

from pullback_profiler.events.event_list import EventList
from pullback_profiler.events.function_event import FunctionEvent
from pullback_profiler.importers.trace_file import Names, TraceFile, microseconds

_LAUNCH = 211  # what nvprof calls cudaLaunchKernel
_API_CALL = {"correlationId": int, "cbid": int, "start": int, "end": int}


class EnforceUnique:
    """Raises an error when a key is seen twice."""

    def __init__(self) -> None:
        self.seen: set[tuple[Hashable, ...]] = set()

    def see(self, *key: Hashable) -> None:
        """Remember a key.

        Raises: RuntimeError if it was seen before.

        >>> unique = EnforceUnique()
        >>> unique.see("marker", 1)
        >>> unique.see("marker", 1)
        Traceback (most recent call last):
            ...
        RuntimeError: duplicate key: ('marker', 1)
        """
        if key in self.seen:
            raise RuntimeError(f"duplicate key: {key}")
        self.seen.add(key)


class _Launch(NamedTuple):
    """A call that launched a kernel: nanoseconds of the call, microseconds of the kernel."""

    start: int
    end: int
    correlation: int
    cbid: int | None  # of the run-time library's calls
    name: str
    device: int
    duration: float


def load_nvprof(path: str | os.PathLike[str]) -> EventList:
    """Return the events of ``parse_nvprof_trace`` as an event list with parents and children.

    Raises: as ``parse_nvprof_trace``.

    >>> load_nvprof("missing.nvvp")
    Traceback (most recent call last):
        ...
    FileNotFoundError: there is no trace file 'missing.nvvp'
    """
    events = EventList(parse_nvprof_trace(path), use_device="cuda")
    events.build_tree()
    return events


def parse_nvprof_trace(path: str | os.PathLike[str]) -> list[FunctionEvent]:
    """Return an event for each NVTX range in a file of ``nvprof -o path``, in order of their start.

    Times are in microseconds after the first range's start. The kernels of an event are those
    launched inside its range, also inside the ranges in it (the event is marked as legacy, which
    means just this). Ranges without an end are left out.

    Raises: FileNotFoundError; ValueError for a damaged file; RuntimeError for two ranges with the
    same number or two kernels of one launch; AssertionError for a kernel that some call other than
    cudaLaunchKernel of the run-time library launched.

    >>> parse_nvprof_trace("missing.nvvp")
    Traceback (most recent call last):
        ...
    FileNotFoundError: there is no trace file 'missing.nvvp'
    """
    with TraceFile(path) as trace:
        names = Names(trace, "StringTable", "_id_", "value")
        markers = _read_markers(trace)
        launches = _read_launches(trace, names)
    begins = [launch.start for launch in launches]
    origin = min((start for start, _, _, _ in markers), default=0)
    unique = EnforceUnique()
    events = []
    for start, end, number, name in markers:
        text = names[name]
        span = microseconds(trace, f"the range {text!r}", start, end, origin)
        event = FunctionEvent(number, text, 0, *span, node_id=0, use_device="cuda", is_legacy=True)
        for launch in launches[bisect_right(begins, start) : bisect_left(begins, end)]:
            if launch.end < end:
                unique.see(number, launch.correlation)
                _check_call(launch)
                event.append_kernel(launch.name, launch.device, launch.duration)
        events.append(event)
    return events


def _read_markers(trace: TraceFile) -> list[tuple[int, int, int, int]]:
    """Return start, end, number and the name's number of each range, in order."""
    rows = trace.rows("CUPTI_ACTIVITY_KIND_MARKER", {"id": int, "name": int, "timestamp": int})
    begun, ended = EnforceUnique(), EnforceUnique()
    ends = {}
    for number, name, time in rows:
        (begun if name else ended).see(number)
        if not name:
            ends[number] = time
    return sorted(
        (time, ends[number], number, name) for number, name, time in rows if name and number in ends
    )


def _read_launches(trace: TraceFile, names: Names) -> list[_Launch]:
    """Return the calls that launched kernels in order; one twice that launched two.

    A program that uses the driver directly, as the CUDA backend does, has its calls in a table of
    their own. It also lists what the run-time library calls in the driver.
    """
    calls: dict[int, list[tuple[int, int, int | None]]] = {}
    for number, cbid, start, end in trace.rows("CUPTI_ACTIVITY_KIND_RUNTIME", _API_CALL):
        calls.setdefault(number, []).append((start, end, cbid))
    if trace.columns("CUPTI_ACTIVITY_KIND_DRIVER"):
        direct: dict[int, list[tuple[int, int, int | None]]] = {}
        for number, _, start, end in trace.rows("CUPTI_ACTIVITY_KIND_DRIVER", _API_CALL):
            direct.setdefault(number, []).append((start, end, None))
        calls = direct | calls
    columns = {"correlationId": int, "start": int, "end": int, "name": int}
    kernels = trace.rows("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", columns, deviceId=int)
    launches = []
    for number, start, end, name, device in kernels:
        text = names[name]
        _, duration = microseconds(trace, f"the kernel {text!r}", start, end, start)
        for call_start, call_end, cbid in calls.get(number, ()):
            launches.append(
                _Launch(call_start, call_end, number, cbid, text, device or 0, duration)
            )
    return sorted(launches)


def _check_call(launch: _Launch) -> None:
    if launch.cbid not in (None, _LAUNCH):
        raise AssertionError(
            f"expected the kernel {launch.name!r} to be launched by the call {_LAUNCH} "
            f"(cudaLaunchKernel), got {launch.cbid}"
        )
