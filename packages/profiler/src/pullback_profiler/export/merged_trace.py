"""One trace of those of several processes, as a program under ``mpiexec`` writes them."""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections.abc import Sequence
from typing import Any

from pullback_profiler.events.util import open_text

_BYTES = re.compile(r"bytes=(\d+)")
_STEP = 1_000_000  # between the numbers of processes, and of arrows, of two traces


def merge_traces(paths: Sequence[str | os.PathLike[str]]) -> dict[str, Any]:
    """Return one trace of several, on one time axis, with a lane for each process.

    The traces are those of ``export_chrome_trace``; ``.gz`` files are read too. Processes are
    named by their rank, which the trace says, or is the place in ``paths``. Events of collectives
    get their bandwidth, in GB/s, from the bytes of a tensor and the duration.
    Raises: ValueError without paths, or for a file that is no trace; OSError.

    >>> from pullback_profiler.export.merged_trace import merge_traces
    >>> merge_traces([])
    Traceback (most recent call last):
    ValueError: merge_traces(): expected at least one trace
    """
    if not paths:
        raise ValueError("merge_traces(): expected at least one trace")
    traces = [read_trace(path) for path in paths]
    begin = min(int(trace.get("baseTimeNanoseconds", 0)) for trace in traces)
    events: list[dict[str, Any]] = []
    for place, trace in enumerate(traces):
        rank = int(trace.get("distributedInfo", {}).get("rank", place))
        late = (int(trace.get("baseTimeNanoseconds", 0)) - begin) / 1000
        events += _moved(trace["traceEvents"], place, rank, late)
    events.sort(key=lambda event: event.get("ts", 0.0))
    head = {key: value for key, value in traces[0].items() if key != "traceEvents"}
    return {**head, "baseTimeNanoseconds": begin, "traceEvents": events}


def read_trace(path: str | os.PathLike[str], plain: bool = False) -> dict[str, Any]:
    """Return a trace of a file, which has a list ``traceEvents``; ``.gz`` files are read too.

    With ``plain`` the file may be that list alone. Raises: OSError; ValueError for other files.

    >>> read_trace("no such file")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'no such file'
    """
    opener = gzip.open if os.fspath(path).endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            trace = json.load(file)
    except (ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{os.fspath(path)!r} is no trace: {error}") from error
    if plain and isinstance(trace, list):
        trace = {"traceEvents": trace}
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise ValueError(f"{os.fspath(path)!r} is no trace: it has no list 'traceEvents'")
    return trace


def _moved(
    events: list[dict[str, Any]], place: int, rank: int, late: float
) -> list[dict[str, Any]]:
    """Return the events of one trace with numbers of their own, later by some microseconds."""
    processes: dict[Any, int] = {}
    moved = []
    for event in events:
        event = dict(event)
        pid = event.get("pid")
        number = processes.setdefault(pid, (place + 1) * _STEP + len(processes))
        event["pid"] = number
        if "ts" in event:
            event["ts"] += late
        if "id" in event:
            own = event["id"]
            event["id"] = (place + 1) * _STEP + own if isinstance(own, int) else f"{place}.{own}"
        arguments = dict(event.get("args", {}))
        if event.get("ph") == "M" and event.get("name") == "process_name":
            arguments["name"] = f"rank {rank}: {arguments.get('name', pid)}"
        elif event.get("ph") == "M" and event.get("name") == "process_sort_index":
            arguments["sort_index"] = rank * _STEP + int(arguments.get("sort_index", 0)) % _STEP
        elif str(event.get("name", "")).startswith("dist::"):
            found = _BYTES.search(str(arguments.get("args", "")))
            if found and event.get("dur"):
                arguments["bandwidth (GB/s)"] = round(int(found[1]) / event["dur"] / 1000, 3)
        if arguments:
            event["args"] = arguments
        moved.append(event)
    return moved


def write_merged(target: str, sources: Sequence[str]) -> None:
    """Write one trace of several into a file; ``.gz`` at the end compresses.

    Raises: as ``merge_traces``.
    """
    merged = merge_traces(sources)
    with open_text(target) as file:
        json.dump(merged, file)
