"""Reads Chrome traces as strict tools do, and finds what they should hold in them."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from pullback_profiler.events.event_list import EventList
from pullback_profiler.events.function_event import BACKWARD_FUNCTION, CPU, FunctionEvent

Trace = dict[str, Any]


def read(path: Path) -> Trace:
    """Return a trace, which has to be JSON and no more than that."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    return json.loads(content.decode(), parse_constant=_refuse, object_pairs_hook=_once)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    assert len(found) == len(pairs), f"a key is there twice: {[key for key, _ in pairs]}"
    return found


def export(profiled: Any, path: Path, **options: Any) -> Trace:
    """Return the exported trace, well-formed."""
    profiled.export_chrome_trace(path, **options)
    trace = read(path)
    assert_well_formed(trace)
    return trace


def entries(trace: Trace, phase: str, category: str | None = None) -> list[dict[str, Any]]:
    """Return the entries of a phase, as ``X``, and perhaps of a category."""
    return [
        entry
        for entry in trace["traceEvents"]
        if entry["ph"] == phase and category in (None, entry.get("cat"))
    ]


def nanoseconds(microseconds: float) -> int:
    assert round(microseconds, 3) == microseconds
    return round(microseconds * 1000)


def span(bar: dict[str, Any]) -> tuple[int, int]:
    """Return start and end in nanoseconds."""
    start = nanoseconds(bar["ts"])
    return start, start + nanoseconds(bar["dur"])


def assert_well_formed(trace: Trace) -> None:
    """Check what every viewer relies on: order, nesting, and arrows with two ends on bars."""
    lanes = defaultdict(list)
    for entry in trace["traceEvents"]:
        if entry["ph"] != "M":
            lanes[entry["pid"], entry["tid"]].append(entry)
    for lane in lanes.values():
        times = [entry["ts"] for entry in lane]
        assert times == sorted(times)
        around: list[tuple[int, int]] = []
        for bar in (entry for entry in lane if entry["ph"] == "X"):
            start, end = span(bar)
            while around and around[-1][1] <= start:
                around.pop()
            assert not around or end <= around[-1][1], f"{bar['name']} crosses another bar"
            around.append((start, end))
    named = {(e["pid"], e["tid"]) for e in entries(trace, "M") if e["name"] == "thread_name"}
    assert {lane for lane in lanes if lane[0] != "Spans"} <= named
    begins = {(e["cat"], e["id"]): e for e in entries(trace, "s")}
    ends = {(e["cat"], e["id"]): e for e in entries(trace, "f")}
    assert begins.keys() == ends.keys()
    assert len(begins) == len(entries(trace, "s")) == len(entries(trace, "f"))
    for key, begin in begins.items():
        assert begin["ts"] <= ends[key]["ts"]
    opened = sorted((e["cat"], e["id"]) for e in entries(trace, "b"))
    assert opened == sorted((e["cat"], e["id"]) for e in entries(trace, "e"))


def arrows(trace: Trace, category: str) -> list[tuple[int, int]]:
    """Return the numbers of the events that arrows begin and end at.

    An arrow belongs to the bar that comes before it in the file, and starts with it.
    """
    at: dict[tuple[int, str], int] = {}
    bar: dict[str, Any] = {}
    for entry in trace["traceEvents"]:
        if entry["ph"] == "X":
            bar = entry
        elif entry["ph"] in "sf" and entry["cat"] == category:
            assert all(entry[key] == bar[key] for key in ("pid", "tid", "ts"))
            on_device = bar["cat"] == "kernel"
            at[entry["id"], entry["ph"]] = bar["args"][
                "correlation" if on_device else "External id"
            ]
    return [(number, at[key, "f"]) for (key, phase), number in at.items() if phase == "s"]


def expected_arrows(events: EventList) -> set[tuple[int, int]]:
    """Return the pairs of each node that has a number and the op of its name that carries it."""
    found = set()
    for node in events:
        if node.scope != BACKWARD_FUNCTION or node.sequence_nr < 0:
            continue
        around_it = node.name == "CopySlices"  # made after the node of the same op, in place
        makers = [
            event
            for event in events
            if (event.thread, event.sequence_nr) == (node.fwd_thread, node.sequence_nr - around_it)
            and event.name.endswith("_" if around_it else made_by(node.name))
        ]
        innermost = [maker for maker in makers if not any(m.cpu_parent is maker for m in makers)]
        assert len(innermost) == 1, f"{node.name} was made by {[m.name for m in makers]}"
        found.add((innermost[0].id, node.id))
    return found


def made_by(node: str) -> str:
    """Return the end of the name of the op, or of the Function, that makes a node.

    >>> made_by("AsStridedBackward0"), made_by("SquareBackward")
    ('::as_strided', 'Square')
    """
    name, backward, overload = node.partition("Backward")
    assert backward
    return f"::{re.sub('(?<=.)(?=[A-Z])', '_', name).lower()}" if overload else name


def rebuilt(trace: Trace) -> EventList:
    """Return the events of the host in a trace, with their tree."""
    begun: dict[tuple[str, int], FunctionEvent] = {}
    events = EventList()
    for entry in trace["traceEvents"]:
        on_host = entry["ph"] in "Xb" and entry["cat"] in ("cpu_op", "user_annotation")
        if on_host:
            start = nanoseconds(entry["ts"])
            end = start + nanoseconds(entry.get("dur", 0.0))
            event = FunctionEvent(
                entry["args"]["External id"],
                entry["name"],
                entry["tid"],
                start / 1000,
                end / 1000,
                is_async=entry["args"].get("Async", False),
            )
            events.append(event)
            if entry["ph"] == "b":
                begun[entry["cat"], entry["id"]] = event
        elif entry["ph"] == "e":
            begun[entry["cat"], entry["id"]].time_range.end = nanoseconds(entry["ts"]) / 1000
    events.build_tree()
    return events


def tree(events: EventList) -> dict[int, tuple[str, int | None, float, float]]:
    """Return name, parent, start and end of what ran on the host, by the event's number."""
    return {
        event.id: (
            event.trace_name,
            None if event.cpu_parent is None else event.cpu_parent.id,
            event.time_range.start,
            event.time_range.end,
        )
        for event in events
        if event.device_type == CPU and event.name not in ("[memory]", "[OutOfMemory]")
    }
