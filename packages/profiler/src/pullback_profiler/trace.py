"""The Chrome trace of a finished profile, as chrome://tracing and Perfetto show it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pullback_profiler.collect import HOST_TYPES, MEMORY_EVENT_NAME, OUT_OF_MEMORY_EVENT_NAME
from pullback_profiler.function_event import BACKWARD_FUNCTION, CPU, FunctionEvent

if TYPE_CHECKING:
    from pullback_profiler.profiling import profile

PRODUCT = "Pullback Profiler"
USER_SCOPE = 7
Entry = dict[str, Any]
# What viewers sort processes by: the host first, devices after it, the whole span last.
DEVICE_ORDER = 5_000_000
SPAN_ORDER = 10_000_000


def trace_parts(profiled: profile, metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield the text of the trace, piece by piece.

    Times are in microseconds since ``baseTimeNanoseconds``, with three decimals.
    """
    recording = profiled._recording
    allocations = profiled._results().allocations
    head = {
        "schemaVersion": 1,
        "deviceProperties": [],
        "trace_id": profiled.trace_id,
        "host_name": socket.gethostname(),
        **metadata,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": recording.started if recording else 0,
    }
    yield json.dumps(head, allow_nan=False)[:-1] + ', "traceEvents": [\n'
    stopped = (recording.stopped - recording.started) / 1000 if recording else 0.0
    events = profiled.function_events
    threads = {} if recording is None else {t.number: t for t in recording.threads}
    writer = _Writer({number: (t.native, t.name) for number, t in threads.items()})
    separator = ""
    entries = writer.entries(events, allocations, recording.started if recording else 0, stopped)
    for entry in entries:
        yield separator + json.dumps(entry, allow_nan=False)
        separator = ",\n"
    yield '\n], "traceName": ' + json.dumps(PRODUCT) + "}\n"


class _Writer:
    """Makes the entries of a trace; threads are known by their numbers in the system."""

    def __init__(self, threads: Mapping[int, tuple[int, str | None]]) -> None:
        self.pid = os.getpid()
        self.threads = threads

    def entries(
        self, events: Iterable[FunctionEvent], allocations: Any, started: int, stopped: float
    ) -> Iterator[Entry]:
        """Yield everything: names of lanes, events by time, flows, memory, and the whole span."""
        events = list(events)
        devices = sorted({e.device_index for e in events if e.device_type != CPU})
        yield from self.lanes(devices, events)
        for number, event in enumerate(events):
            if event.name not in (MEMORY_EVENT_NAME, OUT_OF_MEMORY_EVENT_NAME):
                yield self.complete(event, number)
        yield from self.annotations(events)
        yield from self.backward_flows(events)
        yield from self.launch_flows(events)
        yield from self.memory(allocations, started)
        yield from self.span(stopped)

    def tid(self, thread: int) -> int:
        return (self.threads.get(thread) or (thread, None))[0] or thread

    def lanes(self, devices: Iterable[int], events: Iterable[FunctionEvent]) -> Iterator[Entry]:
        """Yield the names and the order of processes and threads."""
        yield from _process(self.pid, "python", "CPU", self.pid)
        for number, (native, name) in self.threads.items():
            tid = native or number
            yield _metadata("thread_name", self.pid, tid, name=f"thread {tid} ({name or 'python'})")
            yield _metadata("thread_sort_index", self.pid, tid, sort_index=number)
        for index in devices:
            yield from _process(index, "python", f"GPU {index}", DEVICE_ORDER + index)
        lanes = {(e.device_index, e.device_resource_id) for e in events if e.device_type != CPU}
        for index, stream in sorted(lanes):
            yield _metadata("thread_name", index, stream, name=f"stream {stream}")
            yield _metadata("thread_sort_index", index, stream, sort_index=stream)

    def complete(self, event: FunctionEvent, number: int) -> Entry:
        """Return an event with its duration and what is known of it."""
        args: Entry = {"External id": event.external_id}
        if event.device_type != CPU:
            args = {
                "External id": event.linked_correlation_id,
                "device": event.device_index,
                "stream": event.device_resource_id,
                "correlation": event.id,
            }
        elif event.scope == USER_SCOPE:
            args["Ev Idx"] = number
            args.update(event.kwinputs or {})
        else:
            if event.sequence_nr >= 0:
                args["Sequence number"] = event.sequence_nr
            args["Fwd thread id"] = event.fwd_thread or 0
            args["Record function id"] = 0
            args["Ev Idx"] = number
            if event.structured_input_shapes is not None:
                args["Input Dims"] = event.structured_input_shapes
                args["Input type"] = event.input_dtypes
                args["Input Strides"] = event.structured_input_strides
                args["Concrete Inputs"] = [
                    "" if value is None else str(value) for value in event.concrete_inputs or ()
                ]
            if event.stack:
                args["Call stack"] = ";".join(event.stack)
        return {
            "ph": "X",
            "cat": event.activity_type or "cpu_op",
            "name": event.trace_name,
            **self.place(event),
            "ts": _microseconds(event.time_range.start),
            "dur": _microseconds(event.time_range.elapsed_us()),
            "args": args,
        }

    def place(self, event: FunctionEvent) -> Entry:
        if event.device_type != CPU:
            return {"pid": event.device_index, "tid": event.device_resource_id}
        return {"pid": self.pid, "tid": self.tid(event.thread)}

    def annotations(self, events: Iterable[FunctionEvent]) -> Iterator[Entry]:
        """Yield the user's blocks again on devices, over the kernels that were launched inside."""
        spans: dict[tuple[int, int, int], list[float]] = {}
        by_id = {event.id: event for event in events}
        for event in events:
            if event.device_type == CPU:
                continue
            around = by_id.get(event.linked_correlation_id)
            while around is not None:
                if around.is_user_annotation:
                    key = (around.id, event.device_index, event.device_resource_id)
                    span = spans.setdefault(key, [float("inf"), 0.0])
                    span[0] = min(span[0], event.time_range.start)
                    span[1] = max(span[1], event.time_range.end)
                around = around.cpu_parent
        for (number, device, stream), (start, end) in spans.items():
            yield {
                "ph": "X",
                "cat": "gpu_user_annotation",
                "name": by_id[number].trace_name,
                "pid": device,
                "tid": stream,
                "ts": _microseconds(start),
                "dur": _microseconds(end - start),
                "args": {"External id": number},
            }

    def backward_flows(self, events: Iterable[FunctionEvent]) -> Iterator[Entry]:
        """Yield an arrow from the innermost op that made a node to each run of the node."""
        makers: dict[tuple[int, int], FunctionEvent] = {}
        for event in events:  # by start: what lies inside comes later
            if event.scope == 0 and event.sequence_nr >= 0 and not event.fwd_thread:
                makers[event.thread, event.sequence_nr] = event
        number = 0
        for event in events:
            if event.scope != BACKWARD_FUNCTION or event.sequence_nr < 0:
                continue
            maker = makers.get((event.fwd_thread or 0, event.sequence_nr))
            if maker is not None:
                number += 1
                yield from self.flow("fwdbwd", number, maker, event)

    def launch_flows(self, events: Iterable[FunctionEvent]) -> Iterator[Entry]:
        """Yield an arrow from what launched a kernel to the kernel."""
        by_id = {event.id: event for event in events}
        for event in events:
            launcher = by_id.get(event.linked_correlation_id)
            if event.device_type != CPU and launcher is not None:
                yield from self.flow("ac2g", event.id, launcher, event)

    def flow(
        self, category: str, number: int, first: FunctionEvent, last: FunctionEvent
    ) -> Iterator[Entry]:
        common = {"id": number, "cat": category, "name": category}
        start, end = (_microseconds(event.time_range.start) for event in (first, last))
        yield {"ph": "s", **common, **self.place(first), "ts": start}
        yield {"ph": "f", **common, **self.place(last), "ts": end, "bp": "e"}

    def memory(self, allocations: Iterable[Any], started: int) -> Iterator[Entry]:
        """Yield changes of memory with what all of them have come to on that device."""
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
                "pid": self.pid,
                "tid": self.tid(change.thread),
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

    def span(self, stopped: float) -> Iterator[Entry]:
        """Yield the whole recording as one bar, with marks at both ends."""
        end = _microseconds(stopped)
        yield _metadata("process_name", "Spans", 0, name="Spans")
        yield _metadata("process_sort_index", "Spans", 0, sort_index=SPAN_ORDER)
        yield {
            "ph": "X",
            "cat": "Trace",
            "name": f"{PRODUCT} (0)",
            "pid": "Spans",
            "tid": PRODUCT,
            "ts": 0.0,
            "dur": end,
            "args": {"Op count": 0},
        }
        for name, time in ((f"Iteration Start: {PRODUCT}", 0.0), ("Record Window End", end)):
            yield {"ph": "i", "s": "g", "name": name, "pid": "Spans", "tid": PRODUCT, "ts": time}


def _microseconds(time: float) -> float:
    return round(time, 3)


def _process(pid: int, name: str, label: str, order: int) -> Iterator[Entry]:
    yield _metadata("process_name", pid, 0, name=name)
    yield _metadata("process_labels", pid, 0, labels=label)
    yield _metadata("process_sort_index", pid, 0, sort_index=order)


def _metadata(what: str, pid: int | str, tid: int, **args: Any) -> Entry:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0.0, "args": args}
