"""A list of events as a plain Chrome trace: a JSON array, without the metadata of a profile."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

from pullback_profiler.events.function_event import CPU, FunctionEvent


def trace_entries(events: Iterable[FunctionEvent], device: str) -> Iterator[dict[str, Any]]:
    """Yield a trace's entries: one for each event, then one for each kernel it launched.

    Times are microseconds since the profile started. Work on a device has a process of its
    own, where it cannot cross what the CPU did.

    >>> [entry] = trace_entries([FunctionEvent(0, "mul", 1, 2.0, 6.5)], "cuda")
    >>> entry["name"], entry["ph"], entry["ts"], entry["dur"]
    ('mul', 'X', 2.0, 4.5)
    """
    flow_numbers = itertools.count()
    for event in events:
        kind, lane = CPU.upper(), event.thread
        if event.device_type != CPU:
            kind, lane = event.device_type.upper(), event.device_resource_id
        thread = f"node_id:{event.node_id}, thread_id:{lane}" if event.is_remote else lane
        track = {"tid": thread, "pid": f"{kind} functions"}
        begin = {"name": event.trace_name, "ph": "X", "ts": event.time_range.start}
        yield {**begin, "dur": event.time_range.elapsed_us(), **track, "args": {}}
        for _ in event.kernels:
            flow = {"id": next(flow_numbers), "cat": f"cpu_to_{device}", "args": {}}
            yield {**begin, "ph": "s", **track, **flow}


def trace_text(events: Iterable[FunctionEvent], device: str) -> Iterator[str]:
    """Yield the parts of a JSON array of ``trace_entries``, so that a file need not be held.

    >>> "".join(trace_text([], "cuda"))
    '[]'
    """
    separator = "["
    for entry in trace_entries(events, device):
        yield separator + json.dumps(entry)
        separator = ", "
    yield "[]" if separator == "[" else "]"
