"""What is recorded: kinds of records, threads and allocations, a recording and its results."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, Protocol

from pullback_profiler.events.event_list import EventList

OP, NODE, RANGE, EVALUATION, KERNEL, FUNCTION = range(6)
MEMORY = 100
OUT_OF_MEMORY_EVENT_NAME = "[OutOfMemory]"
MEMORY_EVENT_NAME = "[memory]"
HOST_TYPES = ("cpu", "ref", "meta")


class Thread(NamedTuple):
    """What one thread recorded: see ``Recorder.threads``."""

    number: int
    name: str | None
    native: int
    records: Collection[tuple[Any, ...]]


class Allocation(NamedTuple):
    """A change of memory: bytes taken, or given back where they are below 0."""

    time: int  # nanoseconds
    thread: int
    address: int
    nbytes: int
    device_type: str
    device_index: int


class Recording(NamedTuple):
    """What was recorded between two points in time, in nanoseconds."""

    threads: list[Thread]
    started: int
    stopped: int


class Results(NamedTuple):
    """The events of a recording, and its allocations."""

    events: EventList
    allocations: list[Allocation]


class Profile(Protocol):
    """What exporters read of a finished ``pullback.autograd.profiler.profile``."""

    use_device: str | None
    profile_memory: bool
    with_flops: bool
    _recording: Recording | None
    _began: int

    @property
    def trace_id(self) -> str:
        """What identifies the profile in traces."""

    @property
    def function_events(self) -> EventList:
        """The events, by start."""

    def _results(self) -> Results:
        """Return the events and the allocations. Raises: RuntimeError inside the block."""


def event_name(kind: int, name: str) -> str:
    """Return the name under which an op, a node or a block is shown.

    >>> event_name(OP, "add"), event_name(EVALUATION, "AccumulateGrad")
    ('pullback::add', 'autograd::engine::evaluate_function: pullback::autograd::AccumulateGrad')
    """
    if kind == OP:
        return name if "::" in name else f"pullback::{name}"
    if kind in (RANGE, FUNCTION):
        return name
    if name == "AccumulateGrad":
        name = f"pullback::autograd::{name}"
    return f"autograd::engine::evaluate_function: {name}" if kind == EVALUATION else name
