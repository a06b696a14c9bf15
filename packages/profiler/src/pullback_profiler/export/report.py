"""The report: one page with everything that a profile knows, for any browser, without a network."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

from pullback_profiler.events.average import FunctionEventAvg
from pullback_profiler.events.backward_links import backward_links
from pullback_profiler.events.function_event import BACKWARD_FUNCTION, CPU, FunctionEvent
from pullback_profiler.events.table import self_device_time
from pullback_profiler.events.util import open_text
from pullback_profiler.export.page import page_text
from pullback_profiler.export.timeline import for_page, memory_series
from pullback_profiler.record.recording import MEMORY_EVENT_NAME, OUT_OF_MEMORY_EVENT_NAME, Profile

SCRIPTS = ("format", "memory", "flame", "frames", "averages", "detail", "report")
# The limit of what a page draws; beyond it, it draws the longest and says so.
MAX_CALLS = 50_000
MAX_PATHS = 20_000
MAX_DETAILS = 20  # shapes and stacks that are listed of one name
ENGINE = "autograd::engine::evaluate_function: "


def write_report(profiled: Profile, path: str | os.PathLike[str], title: str | None = None) -> None:
    """Write the report of a finished profile; see ``profile.export_html``."""
    data = report_data(profiled, "Pullback profile" if title is None else title)
    text = page_text("report", SCRIPTS, data)
    with open_text(path) as file:
        file.write(text)


def report_data(profiled: Profile, title: str) -> dict[str, Any]:
    """Return the data of a report for its scripts.

    Times are in microseconds since the profile started, memory in bytes.

    >>> import pullback
    >>> from pullback_profiler import profile
    >>> with profile() as p:
    ...     y = pullback.ones(2).exp()
    >>> [row["name"] for row in report_data(p, "two ops")["rows"]]
    ['pullback::ones', 'pullback::exp']
    """
    events, recording = profiled.function_events, profiled._recording
    names = (
        {} if recording is None else {thread.number: thread.name for thread in recording.threads}
    )
    report = _Report(events, names)
    calls, calls_left = report.calls()
    paths, paths_left = report.paths()
    return {
        "title": title,
        "wall": 0 if recording is None else (recording.stopped - recording.started) / 1000,
        "selfCpu": events.self_cpu_time_total,
        "device": profiled.use_device and profiled.use_device.upper(),
        "selfDevice": self_device_time(events) or 0,
        "count": len(events),
        "recorded": {"memory": profiled.profile_memory, "flops": profiled.with_flops},
        "rows": [row.as_json() for row in report.rows],
        "lanes": list(report.lanes),
        "lines": list(report.lines),
        "shapes": list(report.shapes),
        "stacks": [list(stack) for stack in report.stacks],
        "calls": calls,
        "paths": paths,
        "left": {"calls": calls_left, "paths": paths_left, "asynchronous": report.asynchronous},
        "memory": [for_page(series) for series in memory_series(profiled)],
    }


def kind_of(event: FunctionEvent) -> str:
    """Return the kind of an event, which chooses its colour.

    >>> kind_of(FunctionEvent(0, "MulBackward0", 1, 0, 1, scope=1))
    'node'
    """
    if event.device_type != CPU:
        return "kernel"
    if event.is_user_annotation:
        return "block"
    if event.scope == BACKWARD_FUNCTION:
        return "node"
    if event.name.startswith(ENGINE):
        return "engine"
    return "memory" if event.name in (MEMORY_EVENT_NAME, OUT_OF_MEMORY_EVENT_NAME) else "op"


class _Numbers(dict[Any, int]):
    """Gives each key a number, in the order in which keys are first looked up."""

    def __missing__(self, key: Hashable) -> int:
        self[key] = number = len(self)
        return number


class _Group:
    """The count and the time of equal shapes, stacks or events."""

    __slots__ = ("count", "time")

    def __init__(self) -> None:
        self.count = 0
        self.time = 0.0

    def add(self, time: float) -> None:
        self.count += 1
        self.time += time


class _Row:
    """The sums over the events of one name."""

    def __init__(self, event: FunctionEvent) -> None:
        self.kind = kind_of(event)
        self.sums = FunctionEventAvg()
        self.time = _Group()
        self.least = float("inf")
        self.most = 0.0
        self.shapes: dict[str, _Group] = {}
        self.stacks: dict[tuple[str, ...], _Group] = {}
        self.partners: Counter[int] = Counter()
        self.callers: Counter[int] = Counter()
        self.callees: Counter[int] = Counter()

    def add(self, event: FunctionEvent) -> None:
        time = event.time_range.elapsed_us()
        self.sums.add(event)
        self.time.add(time)
        self.least = min(self.least, time)
        self.most = max(self.most, time)
        if event.input_shapes:
            self.shapes.setdefault(str(event.input_shapes), _Group()).add(time)
        if event.stack:
            self.stacks.setdefault(tuple(event.stack), _Group()).add(time)

    def as_json(self) -> dict[str, Any]:
        sums = self.sums
        shapes, stacks = _longest(self.shapes), _longest(self.stacks)
        return {
            "name": sums.key,
            "kind": self.kind,
            "count": sums.count,
            "selfCpu": sums.self_cpu_time_total,
            "cpu": sums.cpu_time_total,
            "selfDevice": sums.self_device_time_total,
            "deviceTime": sums.device_time_total,
            "cpuMemory": sums.cpu_memory_usage,
            "selfCpuMemory": sums.self_cpu_memory_usage,
            "deviceMemory": sums.device_memory_usage,
            "selfDeviceMemory": sums.self_device_memory_usage,
            "flops": sums.flops,
            "least": self.least,
            "mean": self.time.time / self.time.count,
            "most": self.most,
            "shapes": [{"text": text, "count": g.count, "time": g.time} for text, g in shapes],
            "otherShapes": len(self.shapes) - len(shapes),
            "stacks": [{"frames": list(s), "count": g.count, "time": g.time} for s, g in stacks],
            "otherStacks": len(self.stacks) - len(stacks),
            "partners": self.partners.most_common(MAX_DETAILS),
            "callers": self.callers.most_common(MAX_DETAILS),
            "callees": self.callees.most_common(MAX_DETAILS),
        }


def _longest(groups: dict[Any, _Group]) -> list[tuple[Any, _Group]]:
    return sorted(groups.items(), key=lambda item: -item[1].time)[:MAX_DETAILS]


class _Report:
    """Numbers what events share: rows, lanes, lines, shapes and stacks."""

    def __init__(self, events: Sequence[FunctionEvent], thread_names: dict[int, Any]) -> None:
        self.rows: list[_Row] = []
        self.thread_names = thread_names
        self.lanes = _Numbers()
        for thread in sorted(thread_names):  # in the order of their first event
            self.lanes[self.thread_label(thread)]
        self.lines = _Numbers()
        self.shapes = _Numbers()
        self.stacks = _Numbers()
        self.row_of: dict[int, int] = {}  # by id() of events
        self.partner_of: dict[int, int] = {}  # id() by id()
        self.depths: dict[int, int] = {}
        self.asynchronous = sum(event.is_async for event in events)
        numbers = _Numbers()
        for event in events:
            number = numbers[event.key, event.device_type, event.is_user_annotation]
            if number == len(self.rows):
                self.rows.append(_Row(event))
            self.rows[number].add(event)
            self.row_of[id(event)] = number
        for event in events:
            self.connect(event.cpu_parent, event)
        for maker, run in backward_links(events):
            self.pair(maker, run)
        # Drawn as frames: events that took time, on one thread.
        self.drawn = [e for e in events if not e.is_async and e.time_range.elapsed_us() > 0]

    def connect(self, parent: FunctionEvent | None, event: FunctionEvent) -> None:
        """Count a call in both its rows, and note how deep it is."""
        self.depths[id(event)] = 0 if parent is None else self.depths[id(parent)] + 1
        if parent is not None:
            outer, inner = self.row_of[id(parent)], self.row_of[id(event)]
            self.rows[outer].callees[inner] += 1
            self.rows[inner].callers[outer] += 1

    def pair(self, maker: FunctionEvent, run: FunctionEvent) -> None:
        """Link a forward op and the run of its node to each other; the op keeps the first."""
        forward, backward = self.row_of[id(maker)], self.row_of[id(run)]
        self.rows[forward].partners[backward] += 1
        self.rows[backward].partners[forward] += 1
        self.partner_of[id(run)] = id(maker)
        self.partner_of.setdefault(id(maker), id(run))

    def lane_of(self, event: FunctionEvent) -> int:
        if event.device_type != CPU:
            label = f"{event.device_type.upper()} {event.device_index}"
            return self.lanes[f"{label}, stream {event.device_resource_id}"]
        return self.lanes[self.thread_label(event.thread)]

    def thread_label(self, thread: int) -> str:
        name = self.thread_names.get(thread)
        return f"thread {thread} ({name})" if name else f"thread {thread}"

    def calls(self) -> tuple[dict[str, list[Any]], int]:
        """Return single calls as columns, the longest if there are many, and how many are left."""
        shown = self.drawn
        if len(shown) > MAX_CALLS:
            longest = sorted(shown, key=lambda event: -event.time_range.elapsed_us())
            chosen = {id(event) for event in longest[:MAX_CALLS]}
            shown = [event for event in shown if id(event) in chosen]
        index = {id(event): at for at, event in enumerate(shown)}
        columns: dict[str, list[Any]] = {
            "row": [self.row_of[id(event)] for event in shown],
            "lane": [self.lane_of(event) for event in shown],
            "start": [round(event.time_range.start, 3) for event in shown],
            "time": [round(event.time_range.elapsed_us(), 3) for event in shown],
            "self": [round(own_time(event), 3) for event in shown],
            "depth": [self.depths[id(event)] for event in shown],
            "shape": [_number(self.shapes, event.input_shapes, str) for event in shown],
            "stack": [_number(self.stacks, event.stack, tuple) for event in shown],
            "partner": [index.get(self.partner_of.get(id(event), 0), -1) for event in shown],
        }
        return columns, len(self.drawn) - len(shown)

    def paths(self) -> tuple[dict[str, list[Any]], int]:
        """Return calls merged by what is around them as columns, and how many paths are left out.

        Lines of the program are frames around an outermost event, numbered -1, -2 and so on.
        """
        numbers = _Numbers()
        sums: list[list[float]] = []  # time, own time, count

        def count(key: tuple[int, int, int], time: float, own: float) -> int:
            number = numbers[key]
            if number == len(sums):
                sums.append([0, 0, 0])
            for at, value in enumerate((time, own, 1)):
                sums[number][at] += value
            return number

        path_of: dict[int, int] = {}
        for event in self.drawn:
            lane, time = self.lane_of(event), event.time_range.elapsed_us()
            above = -1
            if event.cpu_parent is not None:
                above = path_of[id(event.cpu_parent)]
            else:
                for line in reversed(event.stack or ()):
                    above = count((lane, above, -1 - self.lines[line]), time, 0)
            row = self.row_of[id(event)]
            path_of[id(event)] = count((lane, above, row), time, own_time(event))
        # A path is never longer than its parent, so the parents of the longest are among them.
        order = sorted(range(len(sums)), key=lambda number: (-sums[number][0], number))
        shown = sorted(order[:MAX_PATHS])
        index = {number: at for at, number in enumerate(shown)}
        keys = list(numbers)
        columns: dict[str, list[Any]] = {
            "lane": [keys[number][0] for number in shown],
            "parent": [index.get(keys[number][1], -1) for number in shown],
            "row": [keys[number][2] for number in shown],
        }
        for at, name in enumerate(("time", "self", "count")):
            columns[name] = [round(sums[number][at], 3) for number in shown]
        return columns, len(sums) - len(shown)


def own_time(event: FunctionEvent) -> float:
    """Return the microseconds of an event outside its children; all of them for device work.

    >>> own_time(FunctionEvent(0, "mul", 1, 0, 2.5))
    2.5
    """
    return event.self_cpu_time_total if event.device_type == CPU else event.time_range.elapsed_us()


def _number(numbers: _Numbers, value: Any, key: Any) -> int:
    return numbers[key(value)] if value else -1
