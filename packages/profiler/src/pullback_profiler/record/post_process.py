"""Events made of records, with names, shapes, stacks, memory and kernels."""

from __future__ import annotations

import functools
import gc
import logging
import math
import os
import runpy
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from pullback import backend
from pullback_profiler.events.event_list import EventList
from pullback_profiler.events.function_event import FunctionEvent
from pullback_profiler.events.string_table import display_name
from pullback_profiler.record.flops import flops_of
from pullback_profiler.record.module_calls import module_number
from pullback_profiler.record.recording import (
    EVALUATION,
    FUNCTION,
    HOST_TYPES,
    KERNEL,
    MEMORY,
    MEMORY_EVENT_NAME,
    NODE,
    OP,
    OUT_OF_MEMORY_EVENT_NAME,
    RANGE,
    Allocation,
    Recording,
    Results,
    Thread,
    event_name,
)

SCOPES = {OP: 0, NODE: 1, RANGE: 7, EVALUATION: 0, FUNCTION: 0}
_ACTIVITIES = {RANGE: "user_annotation"}
DTYPES = (
    *("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16"),
    *("float32", "float64", "complex64", "complex128", "uint16", "uint32", "uint64", "complex32"),
)

logger = logging.getLogger("pullback.profiler")


_NO_DETAILS: tuple[list[Any], tuple[Any, ...]] = ([], ())


class Options(NamedTuple):
    """Which records become part of events, and how long that may take."""

    use_device: str | None = None
    with_flops: bool = False
    profile_memory: bool = False
    timeout: float | None = None  # seconds for all of it


def post_process(recording: Recording, options: Options) -> Results:
    """Return the events of a recording, by start, with their tree.

    Times of events are in microseconds since the recording started. When ``options.timeout``
    seconds are over, the events made by then are returned, and a warning is logged.
    """
    enabled = gc.isenabled()
    gc.disable()  # a million events: collections would traverse them again and again
    try:
        return _PostProcessor(recording, options).results()
    finally:
        if enabled:
            gc.enable()


class _Running:
    """An event that has begun, while the records of its thread are processed.

    ``host_bytes`` and ``device_bytes`` are changes of memory that are not yet added to it and to
    the event around it.
    """

    __slots__ = ("device_bytes", "end", "event", "first_end", "has_flops", "host_bytes")

    def __init__(self, event: FunctionEvent, end: int, has_flops: bool) -> None:
        self.event = event
        self.end = end
        self.first_end = end  # of this and all that are around it
        self.has_flops = has_flops
        self.host_bytes = 0
        self.device_bytes = 0


def end_until(running: list[_Running], time_ns: float) -> None:
    """Remove the events that have ended by a time, also between others that go on."""
    while running and running[-1].first_end <= time_ns:
        at = len(running) - 1
        while running[at].end > time_ns:  # events around it outlast it
            _add_memory(running, at)
            at -= 1
        _add_memory(running, at)
        del running[at]
        for later in range(at, len(running)):
            _set_first_end(running, later)


def _add_memory(running: list[_Running], at: int) -> None:
    """Add the changes of memory inside an event to it and to the event around it."""
    inner = running[at]
    inner.event.cpu_memory_usage += inner.host_bytes
    inner.event.device_memory_usage += inner.device_bytes
    if at:
        running[at - 1].host_bytes += inner.host_bytes
        running[at - 1].device_bytes += inner.device_bytes
    inner.host_bytes = inner.device_bytes = 0


def _set_first_end(running: list[_Running], at: int) -> None:
    """Set when the first of an event and those around it ends."""
    inner = running[at]
    inner.first_end = min(inner.end, running[at - 1].first_end) if at else inner.end


class _PostProcessor:
    def __init__(self, recording: Recording, options: Options) -> None:
        self.recording = recording
        self.options = options
        self.types = backend.device_types()
        self.events = EventList(
            use_device=options.use_device,
            profile_memory=options.profile_memory,
            with_flops=options.with_flops,
        )
        self.allocations: list[Allocation] = []
        self.kernels: list[tuple[FunctionEvent, int, int]] = []  # with start and end
        self.early: dict[int, int] = {}  # nanoseconds by which the clock of a device is behind
        self.names: dict[tuple[int, str], str] = {}
        self.frames: dict[Any, str | None] = {}
        self.deadline = (
            None if options.timeout is None else time.monotonic() + max(options.timeout, 0.0)
        )

    def results(self) -> Results:
        for thread in self.recording.threads:
            if not self.add_thread(thread):
                logger.warning(
                    "the profiler's results are partial: processing took longer than "
                    "post_processing_timeout_s=%s",
                    self.options.timeout,
                )
                break
        self.set_kernel_times()
        self.events.sort(key=lambda event: (event.time_range.start, -event.time_range.end))
        self.events.build_tree()
        self.allocations.sort(key=lambda allocation: allocation.time)
        return Results(self.events, self.allocations)

    def add_thread(self, thread: Thread) -> bool:
        """Add a thread's events; False if time ran out."""
        running: list[_Running] = []
        in_time = True
        for count, record in enumerate(thread.records):
            if self.deadline is not None and count % 512 == 0:
                in_time = time.monotonic() < self.deadline
                if not in_time:
                    break
            end_until(running, record[2])
            kind = record[0]
            if kind == MEMORY:
                self.add_allocation(thread, record, running)
            elif kind == KERNEL:
                self.add_kernel(record, running)
            else:
                self.add_event(thread, record, running)
        end_until(running, math.inf)
        return in_time

    def add_event(self, thread: Thread, record: Any, running: list[_Running]) -> None:
        kind, name, start, end, sequence, forward, ending, _, details = record
        shown = self.names.get((kind, name))
        if shown is None:
            shown = self.names[kind, name] = event_name(kind, name)
        inputs, stack = details or _NO_DETAILS
        module = module_number(name) if kind == RANGE else -1
        activity = "python_function" if module >= 0 else _ACTIVITIES.get(kind, "cpu_op")
        event = FunctionEvent(
            len(self.events) + 1,
            shown if kind != RANGE else display_name(shown),
            thread.number,
            self.microseconds(start),
            self.microseconds(end),
            fwd_thread=forward if sequence >= 0 else 0,
            scope=SCOPES[kind] if module < 0 else 0,
            use_device=self.options.use_device,
            is_async=ending != 0,
            sequence_nr=sequence,
            trace_name=shown,
            is_user_annotation=activity == "user_annotation",
            is_python_function=module >= 0,
            python_module_id=module,
            activity_type=activity,
            external_id=len(self.events) + 1,
            input_shapes=[],
            stack=self.stack_of(stack),
            device_resource_id=thread.native,
        )
        has_flops = bool(running and running[-1].has_flops)
        if kind == RANGE:
            event.kwinputs = {"args": inputs[1]} if len(inputs) > 1 else {}
        elif inputs:
            shapes = [value[1] if _is_tensor(value) else None for value in inputs]
            describe_inputs(event, inputs)
            if self.options.with_flops and kind == OP and not has_flops:
                event.flops = flops_of(name, shapes, inputs)
                has_flops = event.flops is not None
        self.events.append(event)
        if not event.is_async:
            running.append(_Running(event, end, has_flops))
            _set_first_end(running, len(running) - 1)

    def add_allocation(self, thread: Thread, record: Any, running: list[_Running]) -> None:
        _, address, time_ns, _, nbytes, _, _, device, _ = record
        kind = self.types[device >> 8]
        self.allocations.append(
            Allocation(time_ns, thread.number, address, nbytes, kind, device & 255)
        )
        on_host = kind in HOST_TYPES
        if address and running:
            if on_host:
                running[-1].host_bytes += nbytes
            else:
                running[-1].device_bytes += nbytes
            return
        at = self.microseconds(time_ns)
        self.events.append(
            FunctionEvent(
                len(self.events) + 1,
                MEMORY_EVENT_NAME if address else OUT_OF_MEMORY_EVENT_NAME,
                thread.number,
                at,
                at,
                use_device=self.options.use_device,
                cpu_memory_usage=nbytes if on_host and address else 0,
                device_memory_usage=nbytes if not on_host and address else 0,
                input_shapes=[],
                stack=[],
                device_resource_id=thread.native,
            )
        )

    def add_kernel(self, record: Any, running: list[_Running]) -> None:
        _, name, launched, _, _, _, _, device, (start, end) = record
        kind, index = self.types[device >> 8], device & 255
        if kind != self.options.use_device:
            return
        launcher = next((r.event for r in reversed(running) if r.end > launched), None)
        shown = f"pullback::{name}"
        if launcher is not None:
            launcher.append_kernel(shown, index, (end - start) / 1000)
        event = FunctionEvent(
            len(self.events) + 1,
            shown,
            index,
            0.0,
            0.0,
            use_device=kind,
            device_type=kind,
            device_index=index,
            device_resource_id=index,
            activity_type="kernel",
            input_shapes=[],
            stack=[],
            linked_correlation_id=0 if launcher is None else launcher.id,
        )
        self.events.append(event)
        self.kernels.append((event, start, end))
        self.early[index] = max(self.early.get(index, 0), launched - start)

    def set_kernel_times(self) -> None:
        """Set the times of kernels: none can have begun before it was launched."""
        for event, start, end in self.kernels:
            early = self.early[event.device_index]
            event.time_range.start = self.microseconds(start + early)
            event.time_range.end = self.microseconds(end + early)

    def microseconds(self, time_ns: int) -> float:
        return (time_ns - self.recording.started) / 1000

    def stack_of(self, stack: Sequence[Any]) -> list[str]:
        """Return the frames of the user's program, innermost first."""
        found = []
        for code, line in zip(stack[::2], stack[1::2], strict=True):
            text = self.frames.get((code, line), "")
            if text == "":
                file = code.co_filename
                text = None if is_internal(file) else f"{file}({line}): {code.co_name}"
                self.frames[code, line] = text
            if text is not None:
                found.append(text)
        return found


def describe_inputs(event: FunctionEvent, inputs: Sequence[Any]) -> None:
    """Set the shapes, strides, dtypes and values of an event's inputs."""
    event.input_shapes = [_flat_shape(value) for value in inputs]
    event.concrete_inputs = [None if _holds_tensors(value) else value for value in inputs]
    event.structured_input_shapes = [_nested(value, 1) for value in inputs]
    event.structured_input_strides = [_nested(value, 2) for value in inputs]
    event.input_dtypes = [_dtype_of(value) for value in inputs]
    event.kwinputs = {}


def _is_tensor(value: Any) -> bool:
    return isinstance(value, tuple)  # (dtype, shape, strides); sequences are lists


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, list):
        return any(_is_tensor(item) for item in value)
    return _is_tensor(value)


def _flat_shape(value: Any) -> list[int]:
    return list(value[1]) if _is_tensor(value) else []


def _nested(value: Any, what: int) -> list[Any]:
    if isinstance(value, list) and _holds_tensors(value):
        return [_nested(item, what) for item in value]
    return list(value[what]) if _is_tensor(value) else []


def _dtype_of(value: Any) -> str:
    if _is_tensor(value):
        return DTYPES[value[0]]
    if _holds_tensors(value):
        return "TensorList"
    if isinstance(value, list):
        return "ScalarList"
    return "" if value is None else "Scalar"


@functools.cache
def internal_folders() -> tuple[str, str, str]:
    """Return the folders of core, of ``pullback.nn``, which users see, and of this package."""
    core = os.path.dirname(os.path.dirname(backend.__file__)) + os.sep
    own = os.path.dirname(os.path.dirname(__file__)) + os.sep
    return core, core + "nn" + os.sep, own


def is_internal(file: str) -> bool:
    """True for files of this package, of core except ``pullback.nn``, and of ``python -m``."""
    core, users, own = internal_folders()
    if file in ("<frozen runpy>", runpy.__file__) or file.startswith(own):
        return True
    return file.startswith(core) and not file.startswith(users)
