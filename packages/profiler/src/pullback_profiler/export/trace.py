"""The Chrome trace of a finished profile, as chrome://tracing and Perfetto show it."""

from __future__ import annotations

import heapq
import json
import os
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from pullback_profiler.events.function_event import CPU, FunctionEvent
from pullback_profiler.events.util import without_halves
from pullback_profiler.export.trace_lanes import DEVICE_ORDER, Lanes, device_blocks, drawable
from pullback_profiler.export.trace_links import Link, links_of
from pullback_profiler.record.recording import (
    HOST_TYPES,
    MEMORY_EVENT_NAME,
    OUT_OF_MEMORY_EVENT_NAME,
    Allocation,
    Profile,
    Recording,
    Results,
)

PRODUCT = "Pullback Profiler"
USER_SCOPE = 7
SPAN_ORDER = 10_000_000  # viewers show what covers the whole recording last
Entry = dict[str, Any]


def trace_parts(profiled: Profile, metadata: Mapping[str, Any]) -> Iterator[str]:
    """Return the text of the trace in parts.

    Times are in microseconds since ``baseTimeNanoseconds``, with three decimals. Raises, before
    the first part: TypeError or ValueError for metadata that JSON cannot hold, ValueError for a
    key that traces have anyway.
    """
    results, recording = profiled._results(), profiled._recording
    head = {
        "schemaVersion": 1,
        "deviceProperties": [],
        "trace_id": profiled.trace_id,
        "host_name": socket.gethostname(),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": profiled._began,
        **_processes(),
    }
    tail = {"traceName": PRODUCT}
    for key in metadata:
        if key in head or key in tail or key == "traceEvents":
            raise ValueError(
                f"export_chrome_trace(): metadata cannot have the key {key!r}: every trace has it"
            )
        if not isinstance(key, str):
            raise TypeError(
                f"export_chrome_trace(): expected keys of metadata to be str, got {key!r}"
            )
    try:
        first = _json({**head, **metadata})
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"export_chrome_trace(): metadata is not JSON: {error}") from error
    return chain(
        (first[:-1], ', "traceEvents": [\n'),
        _joined(_entries(results, recording)),
        ("\n], ", _json(tail)[1:], "\n"),
    )


def _processes() -> Entry:
    """Return which of several processes this is, where ``pullback.distributed`` knows."""
    package = sys.modules.get("pullback_distributed")
    if package is None or not package.is_initialized():
        return {}
    found = {
        "backend": "mpi",
        "rank": package.get_rank(),
        "world_size": package.get_world_size(),
    }
    return {"distributedInfo": found}


def _joined(entries: Iterable[Entry]) -> Iterator[str]:
    separator = ""
    for entry in entries:
        yield separator + _json(entry)
        separator = ",\n"


def _json(value: Any) -> str:
    """Return strict JSON that a UTF-8 file can hold."""
    return without_halves(json.dumps(value, allow_nan=False, ensure_ascii=False))


def _entries(results: Results, recording: Recording | None) -> Iterator[Entry]:
    """Yield everything: names of lanes, events by time, and the whole span."""
    events = results.events
    started, stopped = (recording.started, recording.stopped) if recording else (0, 0)
    threads = recording.threads if recording else []
    lanes = Lanes(os.getpid(), threads)
    yield from _names(lanes, events)
    numbered = [(n, event) for n, event in enumerate(events) if event.activity_type is not None]
    blocks = [(-1, block) for block in device_blocks(events)]
    if blocks:
        numbered = list(heapq.merge(blocks, numbered, key=_order))
    ends, apart = drawable((event for _, event in numbered), lanes)
    yield from heapq.merge(
        _bars(numbered, lanes, ends, links_of(events, apart)),
        _separate(numbered, lanes, apart),
        _memory(results.allocations, lanes, started),
        key=itemgetter("ts"),
    )
    yield from _span((stopped - started) / 1000)


def _order(numbered: tuple[int, FunctionEvent]) -> tuple[float, float]:
    span = numbered[1].time_range
    return span.start, -span.end


def _names(lanes: Lanes, events: Sequence[FunctionEvent]) -> Iterator[Entry]:
    """Yield the names and the order of processes and threads."""
    yield from _process(lanes.pid, "CPU", lanes.pid)
    for number, tid in lanes.tids.items():
        name = f"thread {tid} ({lanes.names[number]})"
        yield _metadata("thread_name", lanes.pid, tid, name=name)
        yield _metadata("thread_sort_index", lanes.pid, tid, sort_index=number)
    streams = {(e.device_index, e.device_resource_id) for e in events if e.device_type != CPU}
    for index in sorted({index for index, _ in streams}):
        yield from _process(lanes.device(index), f"GPU {index}", DEVICE_ORDER + index)
    for index, stream in sorted(streams):
        pid = lanes.device(index)
        yield _metadata("thread_name", pid, stream, name=f"stream {stream}")
        yield _metadata("thread_sort_index", pid, stream, sort_index=stream)


def _bars(
    numbered: Iterable[tuple[int, FunctionEvent]],
    lanes: Lanes,
    ends: Mapping[int, float],
    links: Mapping[int, list[Link]],
) -> Iterator[Entry]:
    """Yield events with their duration, each followed by the arrows that begin or end there."""
    for number, event in numbered:
        end = ends.get(id(event))
        if end is None:
            continue
        lane = lanes.of_event(event)._asdict()
        start = event.time_range.start
        ts = _microseconds(start)
        yield {
            "ph": "X",
            "cat": event.activity_type,
            "name": event.trace_name,
            **lane,
            "ts": ts,
            "dur": _microseconds(end - start),
            "args": _arguments(event, number),
        }
        for link in links.get(id(event), ()):
            arrow = {"id": link.number, "cat": link.category, "name": link.category}
            if link.begins:
                yield {"ph": "s", **arrow, **lane, "ts": ts}
            else:
                yield {"ph": "f", **arrow, **lane, "ts": ts, "bp": "e"}


def _separate(
    numbered: Iterable[tuple[int, FunctionEvent]], lanes: Lanes, apart: set[int]
) -> Iterator[Entry]:
    """Yield begin and end, apart from each other, of events that fit no stack of bars."""
    found: list[Entry] = []
    for number, event in numbered:
        if id(event) in apart:
            common = {"cat": event.activity_type, "name": event.trace_name, "id": event.id}
            common.update(lanes.of_event(event)._asdict())
            begin, end = event.time_range.start, event.time_range.end
            arguments = _arguments(event, number)
            arguments["Async"] = event.is_async
            found.append({"ph": "b", **common, "ts": _microseconds(begin), "args": arguments})
            found.append({"ph": "e", **common, "ts": _microseconds(end)})
    found.sort(key=itemgetter("ts"))
    yield from found


def _arguments(event: FunctionEvent, number: int) -> Entry:
    """Return what is known of an event beside its time."""
    if event.device_type != CPU:
        return {
            "External id": event.linked_correlation_id,
            "device": event.device_index,
            "stream": event.device_resource_id,
            "correlation": event.id,
        }
    if event.is_python_function:
        return {"Python module id": event.python_module_id, "Ev Idx": number}
    args: Entry = {"External id": event.external_id, "Record function id": 0, "Ev Idx": number}
    if event.scope == USER_SCOPE:
        args.update(event.kwinputs or {})
        return args
    if event.sequence_nr >= 0:
        args["Sequence number"] = event.sequence_nr
        args["Fwd thread id"] = event.fwd_thread or 0
    if event.structured_input_shapes is not None:
        args["Input Dims"] = event.structured_input_shapes
        args["Input type"] = event.input_dtypes
        args["Input Strides"] = event.structured_input_strides
        args["Concrete Inputs"] = [
            "" if value is None else str(value) for value in event.concrete_inputs or ()
        ]
    if event.stack:
        args["Call stack"] = ";".join(event.stack)
    return args


def _memory(allocations: Iterable[Allocation], lanes: Lanes, started: int) -> Iterator[Entry]:
    """Yield changes of memory with the total on that device."""
    totals: dict[tuple[str, int], int] = {}
    for change in allocations:
        where = (change.device_type, change.device_index)
        if change.address:
            totals[where] = totals.get(where, 0) + change.nbytes
        on_host = change.device_type in HOST_TYPES
        yield {
            "ph": "i",
            "cat": "cpu_instant_event",
            "s": "t",
            "name": MEMORY_EVENT_NAME if change.address else OUT_OF_MEMORY_EVENT_NAME,
            **lanes.thread(change.thread)._asdict(),
            "ts": _microseconds((change.time - started) / 1000),
            "args": {
                "Bytes": change.nbytes,
                "Total Allocated": totals.get(where, 0),  # since recording began
                "Total Reserved": 0,
                "Addr": change.address,
                "Device Id": -1 if on_host else change.device_index,
                "Device Type": 0 if on_host else 1,
            },
        }


def _span(length: float) -> Iterator[Entry]:
    """Yield the whole recording as one bar, with marks at both ends."""
    end = _microseconds(length)
    lane: Entry = {"pid": "Spans", "tid": PRODUCT}
    yield _metadata("process_name", "Spans", 0, name="Spans")
    yield _metadata("process_sort_index", "Spans", 0, sort_index=SPAN_ORDER)
    bar = {"ph": "X", "cat": "Trace", "name": f"{PRODUCT} (0)", **lane}
    yield {**bar, "ts": 0.0, "dur": end, "args": {"Op count": 0}}
    for name, ts in ((f"Iteration Start: {PRODUCT}", 0.0), ("Record Window End", end)):
        yield {"ph": "i", "s": "g", "name": name, **lane, "ts": ts}


def _microseconds(time_us: float) -> float:
    return round(time_us, 3)


def _process(pid: int, label: str, order: int) -> Iterator[Entry]:
    yield _metadata("process_name", pid, 0, name="python")
    yield _metadata("process_labels", pid, 0, labels=label)
    yield _metadata("process_sort_index", pid, 0, sort_index=order)


def _metadata(what: str, pid: int | str, tid: int, **args: Any) -> Entry:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0.0, "args": args}
