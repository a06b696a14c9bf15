"""The processes and lanes of a Chrome trace, and which events are bars that nest in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pullback_profiler.events.function_event import CPU, FunctionEvent
from pullback_profiler.record.recording import Thread

DEVICE_ORDER = 5_000_000  # viewers sort processes by a number: the host first, then devices
RESOLUTION = 1.0  # microseconds by which the clock of a device is wrong


class Lane(NamedTuple):
    """A lane of a Chrome trace: a thread of a process."""

    pid: int
    tid: int


class Lanes:
    """Gives each thread and each stream of a device a lane of its own.

    A thread has its number in the system, if that is known and no other thread had it.

    >>> from pullback_profiler.record.recording import Thread
    >>> threads = [Thread(1, "main", 77, []), Thread(2, "pool", 77, []), Thread(3, None, 0, [])]
    >>> Lanes(70, threads).tids
    {1: 77, 2: 78, 3: 79}
    """

    def __init__(self, pid: int, threads: Sequence[Thread]) -> None:
        self.pid = pid
        self.tids: dict[int, int] = {}
        self.names: dict[int, str] = {}
        free = max((thread.native for thread in threads), default=0)
        used = set()
        for thread in threads:
            if thread.number in self.tids:
                continue
            tid = thread.native
            if not tid or tid in used:
                free += 1
                tid = free
            used.add(tid)
            self.tids[thread.number] = tid
            self.names[thread.number] = thread.name or "python"

    def thread(self, number: int) -> Lane:
        """Return the lane of a thread."""
        return Lane(self.pid, self.tids[number])

    def device(self, index: int) -> int:
        """Return the process of a device: its index, unless this process has that number."""
        return index if index != self.pid else DEVICE_ORDER + index

    def of_event(self, event: FunctionEvent) -> Lane:
        """Return the lane of an event."""
        if event.device_type == CPU:
            return self.thread(event.thread)
        return Lane(self.device(event.device_index), event.device_resource_id)


def drawable(events: Iterable[FunctionEvent], lanes: Lanes) -> tuple[dict[int, float], set[int]]:
    """Return where bars end, by ``id()`` of their events, and which events cannot be bars.

    Bars of a lane nest or do not touch. Events that end on another thread or cross others are not
    bars; where a user's block and an op cross, the op stays a bar. ``events`` come by start, outer
    ones first.

    >>> crossing = [
    ...     FunctionEvent(0, "block", 1, 0, 5, is_user_annotation=True),
    ...     FunctionEvent(1, "op", 1, 3, 8),
    ... ]
    >>> lanes = Lanes(70, [])
    >>> lanes.tids[1] = 77
    >>> ends, apart = drawable(crossing, lanes)
    >>> list(ends.values()), apart == {id(crossing[0])}
    ([8], True)
    """
    ends: dict[int, float] = {}
    apart: set[int] = set()
    stacks: dict[Lane, list[FunctionEvent]] = {}
    for event in events:
        if event.is_async:
            apart.add(id(event))
            continue
        span = event.time_range
        ends[id(event)] = span.end
        around = stacks.setdefault(lanes.of_event(event), [])
        while around and ends[id(around[-1])] < span.end:
            last = around.pop()
            over = ends[id(last)] - span.start
            if over <= 0:
                continue
            if event.device_type != CPU and over < RESOLUTION:
                ends[id(last)] = span.start  # one after the other: clocks of devices are coarse
            elif event.is_user_annotation and not last.is_user_annotation:
                around.append(last)
                apart.add(id(event))
                break
            else:
                apart.add(id(last))
        if id(event) not in apart:
            around.append(event)
    for number in apart:
        ends.pop(number, None)
    return ends, apart


def device_blocks(events: Sequence[FunctionEvent]) -> Iterator[FunctionEvent]:
    """Yield the user's blocks again on devices, by start, over the kernels launched inside."""
    spans: dict[tuple[int, int, int], list[float]] = {}
    kernels = [event for event in events if event.device_type != CPU]
    if not kernels:
        return
    by_id = {event.id: event for event in events if event.device_type == CPU}
    for kernel in kernels:
        around = by_id.get(kernel.linked_correlation_id)
        while around is not None:
            if around.is_user_annotation:
                key = (around.id, kernel.device_index, kernel.device_resource_id)
                span = spans.setdefault(key, [float("inf"), 0.0])
                span[0] = min(span[0], kernel.time_range.start)
                span[1] = max(span[1], kernel.time_range.end)
            around = around.cpu_parent
    # Outer blocks have smaller numbers: they come first where both cover the same kernels.
    for key, span in sorted(spans.items(), key=lambda item: (item[1][0], -item[1][1], item[0])):
        number, index, stream = key
        yield FunctionEvent(
            number,
            by_id[number].name,
            index,
            span[0],
            span[1],
            trace_name=by_id[number].trace_name,
            device_type=kernels[0].device_type,
            device_index=index,
            device_resource_id=stream,
            is_user_annotation=True,
            activity_type="gpu_user_annotation",
            linked_correlation_id=number,
        )
