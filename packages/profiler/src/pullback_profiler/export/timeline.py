"""Memory over time: how much tensors held on each device, and what changed it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pullback_profiler.events.function_event import CPU, FunctionEvent
from pullback_profiler.events.util import open_text
from pullback_profiler.export.page import page_text
from pullback_profiler.record.recording import HOST_TYPES, MEMORY_EVENT_NAME, Allocation, Profile

MAX_POINTS = 8000  # of a line in a page


class Series(NamedTuple):
    """What tensors held on one device after each change, counted from the start of recording.

    ``times`` are in microseconds since then; ``nbytes`` falls below 0 where more was given back
    than taken; ``events`` names the innermost event around each change, "[memory]" without one.

    >>> Series("cpu", [1.0, 2.0], [512, 0], ["pullback::exp", "[memory]"]).peak
    512
    """

    device: str
    times: list[float]
    nbytes: list[int]
    events: list[str]

    @property
    def peak(self) -> int:
        """The most bytes held at any time."""
        return max([0, *self.nbytes])


class _InnermostEvents:
    """Finds the innermost event of a thread around points in time, which must not go back."""

    def __init__(self) -> None:
        self.events: list[FunctionEvent] = []  # by start
        self._next = 0
        self._open: list[FunctionEvent] = []

    def name_at(self, time: float) -> str:
        events, around = self.events, self._open
        while self._next < len(events) and events[self._next].time_range.start <= time:
            event = events[self._next]
            self._next += 1
            _drop_ended(around, event.time_range.start)
            around.append(event)
        _drop_ended(around, time)
        return around[-1].name if around else MEMORY_EVENT_NAME


def _drop_ended(around: list[FunctionEvent], time: float) -> None:
    while around and around[-1].time_range.end <= time:
        around.pop()


def memory_series(profiled: Profile) -> list[Series]:
    """Return the memory series of each device of a finished profile, the highest peak first.

    Raises: RuntimeError before the block has ended.

    >>> from pullback_profiler import profile
    >>> with profile(profile_memory=True) as p:
    ...     pass
    >>> memory_series(p)
    []
    """
    results, recording = profiled._results(), profiled._recording
    threads: dict[int, _InnermostEvents] = {}
    for event in results.events:
        if event.device_type == CPU and not event.is_async:
            threads.setdefault(event.thread, _InnermostEvents()).events.append(event)
    found: dict[str, Series] = {}
    for change in results.allocations:
        if recording is None or not change.address:  # an attempt that failed took nothing
            continue
        device = _device_name(change)
        series = found.setdefault(device, Series(device, [], [], []))
        time = (change.time - recording.started) / 1000
        held = series.nbytes[-1] if series.nbytes else 0
        series.times.append(time)
        series.nbytes.append(held + change.nbytes)
        series.events.append(threads.setdefault(change.thread, _InnermostEvents()).name_at(time))
    return sorted(found.values(), key=lambda series: -series.peak)


def _device_name(change: Allocation) -> str:
    on_host = change.device_type in HOST_TYPES
    return change.device_type if on_host else f"{change.device_type}:{change.device_index}"


def for_page(series: Series) -> dict[str, Any]:
    """Return a series as pages draw it: with ``MAX_POINTS`` points or fewer, the peak among them.

    >>> for_page(Series("cpu", [1.0], [512], ["pullback::exp"]))["peak"]
    512
    """
    shown = list(extremes(series.nbytes, MAX_POINTS))
    return {
        "device": series.device,
        "peak": series.peak,
        "changes": len(series.times),
        "times": [round(series.times[at], 3) for at in shown],
        "bytes": [series.nbytes[at] for at in shown],
        "events": [series.events[at] for at in shown],
    }


def extremes(values: Sequence[int], limit: int) -> Iterator[int]:
    """Yield the indices of all values, or of the least, the most and the last of each chunk.

    >>> list(extremes([5, 1, 9, 2, 7, 7, 0], limit=3))
    [2, 6]
    """
    if len(values) <= limit:
        yield from range(len(values))
        return
    size = -(-len(values) // (limit // 3))
    for first in range(0, len(values), size):
        chunk = range(first, min(first + size, len(values)))
        yield from sorted(
            {min(chunk, key=values.__getitem__), max(chunk, key=values.__getitem__), chunk[-1]}
        )


def write_memory_timeline(
    profiled: Profile, path: str | os.PathLike[str], device: object = None
) -> None:
    """Write a device's memory over time; see ``profile.export_memory_timeline``."""
    if not profiled.profile_memory:
        raise RuntimeError("export_memory_timeline() requires profile_memory=True")
    name = os.fsdecode(path)
    suffix = os.path.splitext(name.removesuffix(".gz"))[1]
    if suffix not in (".json", ".html"):
        raise ValueError(
            f"export_memory_timeline(): expected a path that ends in .json, .html, .json.gz or "
            f".html.gz, got {name!r}"
        )
    series = _of_device(memory_series(profiled), device)
    if suffix == ".json":
        text = json.dumps([series.times, series.nbytes, series.events])
    else:
        recording = profiled._recording
        data = {
            "title": f"Memory of tensors on {series.device}",
            "wall": 0 if recording is None else (recording.stopped - recording.started) / 1000,
            "memory": [for_page(series)] if series.times else [],
        }
        text = page_text("timeline", ["format", "memory", "timeline"], data)
    with open_text(path) as file:
        file.write(text)


def _of_device(found: Sequence[Series], device: object) -> Series:
    """Return the series of a device, by default that of the highest peak."""
    if device is None:
        return found[0] if found else Series(CPU, [], [], [])
    name = str(device)
    for series in found:
        if series.device in (name, f"{name}:0"):
            return series
    names = ", ".join(series.device for series in found) or "none"
    raise ValueError(
        f"export_memory_timeline(): nothing was recorded on device {name!r}; recorded: {names}"
    )
