"""One recorded event: an operation, a node of the graph, a user's block, or work on a device."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

from pullback_profiler.events.event_metadata import metadata_from_trace
from pullback_profiler.events.formatted_times import FormattedTimesMixin
from pullback_profiler.events.util import Interval

CPU = "cpu"  # the device type of what ran on the host
NANOSECOND = 1e-3  # in microseconds
BACKWARD_FUNCTION = 1  # the scope of a node's formula


class Kernel(NamedTuple):
    """Work on a device that an event launched; ``duration`` is in microseconds.

    >>> from pullback_profiler import Kernel
    >>> Kernel("gemm", 0, 12.5)
    Kernel(name='gemm', device=0, duration=12.5)
    """

    name: str
    device: int
    duration: float


class FunctionEvent(FormattedTimesMixin):
    """One recorded event.

    Times are microseconds since the profile started: ``time_range`` from start to end,
    ``cpu_time_total`` and ``device_time_total`` include the children, ``self_cpu_time_total`` and
    ``self_device_time_total`` do not. Memory is in bytes, freed memory counts below zero:
    ``cpu_memory_usage`` and ``device_memory_usage`` include the children, and the ones that begin
    with ``self_`` are derived.

    ``thread`` counts from 1; ``fwd_thread`` and ``sequence_nr`` (-1: none) identify the forward
    event of a backward one. ``scope`` is 0 for operations, 1 for the formulas of nodes, 7 for
    blocks of the user. ``stack`` lists ``file(line): function`` with the innermost first.
    ``device_type`` is "cpu" for what ran on the host, else the name of the device's kind, and
    ``use_device`` the kind that was profiled beside the CPU. ``kernels`` is what an event launched.
    ``input_shapes`` and the other descriptions of inputs are None or empty unless recorded.

    ``EventList.build_tree`` sets ``cpu_parent`` and ``cpu_children``.

    >>> from pullback_profiler import FunctionEvent
    >>> FunctionEvent(3, "pullback::mul", thread=1, start_us=2.0, end_us=6.5)
    <FunctionEvent id=3 name='pullback::mul' thread=1 start_us=2.0 end_us=6.5 cpu_time=4.500us>
    """

    # A profile may hold a million events: slots, not dictionaries, and no empty lists.
    __slots__ = (
        "_cpu_children",
        "_kernels",
        "_metadata_json",
        "activity_type",
        "concrete_inputs",
        "count",
        "cpu_memory_usage",
        "cpu_parent",
        "device_index",
        "device_memory_usage",
        "device_resource_id",
        "device_type",
        "event_metadata",
        "external_id",
        "flops",
        "flow_id",
        "flow_start",
        "flow_type",
        "fwd_thread",
        "id",
        "input_dtypes",
        "input_shapes",
        "is_async",
        "is_legacy",
        "is_python_function",
        "is_remote",
        "is_user_annotation",
        "kwinputs",
        "linked_correlation_id",
        "name",
        "node_id",
        "overload_name",
        "python_id",
        "python_module_id",
        "python_parent_id",
        "scope",
        "sequence_nr",
        "stack",
        "structured_input_shapes",
        "structured_input_strides",
        "thread",
        "time_range",
        "trace_name",
        "use_device",
    )

    def __init__(
        self,
        id: int,
        name: str,
        thread: int,
        start_us: float,
        end_us: float,
        overload_name: str | None = None,
        fwd_thread: int | None = None,
        input_shapes: list[list[int]] | None = None,
        stack: list[str] | None = None,
        scope: int = 0,
        use_device: str | None = None,
        cpu_memory_usage: int = 0,
        device_memory_usage: int = 0,
        is_async: bool = False,
        is_remote: bool = False,
        sequence_nr: int = -1,
        node_id: int = -1,
        device_type: str = CPU,
        device_index: int = 0,
        device_resource_id: int | None = None,
        is_legacy: bool = False,
        flops: int | None = None,
        trace_name: str | None = None,
        concrete_inputs: list[Any] | None = None,
        kwinputs: dict[str, Any] | None = None,
        is_user_annotation: bool = False,
        is_python_function: bool = False,
        activity_type: str | None = None,
        metadata_json: str | None = None,
        flow_id: int | None = None,
        flow_type: int | None = None,
        flow_start: bool | None = None,
        external_id: int = 0,
        linked_correlation_id: int = 0,
        extra_meta: Mapping[str, Any] | None = None,
        structured_input_shapes: list[Any] | None = None,
        structured_input_strides: list[Any] | None = None,
        input_dtypes: list[str] | None = None,
        python_id: int = -1,
        python_parent_id: int = -1,
        python_module_id: int = -1,
    ) -> None:
        self.id = id
        self.name = name
        self.thread = thread
        self.time_range = Interval(start_us, end_us)
        self.overload_name = overload_name
        self.fwd_thread = fwd_thread
        self.input_shapes = input_shapes
        self.stack = stack
        self.scope = scope
        self.use_device = use_device
        self.cpu_memory_usage = cpu_memory_usage
        self.device_memory_usage = device_memory_usage
        self.is_async = is_async
        self.is_remote = is_remote
        self.sequence_nr = sequence_nr
        self.node_id = node_id
        self.device_type = device_type
        self.device_index = device_index
        self.device_resource_id = thread if device_resource_id is None else device_resource_id
        self.is_legacy = is_legacy
        self.flops = flops
        self.trace_name = name if trace_name is None else trace_name
        self.concrete_inputs = concrete_inputs
        self.kwinputs = kwinputs
        self.is_user_annotation = is_user_annotation
        self.is_python_function = is_python_function
        self.activity_type = activity_type
        self._metadata_json = metadata_json
        self.flow_id = flow_id
        self.flow_type = flow_type
        self.flow_start = flow_start
        self.external_id = external_id
        self.linked_correlation_id = linked_correlation_id
        self.event_metadata = metadata_from_trace(extra_meta) if extra_meta else None
        self.structured_input_shapes = structured_input_shapes
        self.structured_input_strides = structured_input_strides
        self.input_dtypes = input_dtypes
        self.python_id = python_id
        self.python_parent_id = python_parent_id
        self.python_module_id = python_module_id
        self.count = 1
        self.cpu_parent: FunctionEvent | None = None
        self._cpu_children: list[FunctionEvent] | None = None
        self._kernels: list[Kernel] | None = None

    @property
    def key(self) -> str:
        """The key by which events are grouped: the name."""
        return self.name

    @property
    def kernels(self) -> list[Kernel]:
        """The work on devices that this event launched itself."""
        if self._kernels is None:
            self._kernels = []
        return self._kernels

    @kernels.setter
    def kernels(self, kernels: list[Kernel]) -> None:
        self._kernels = kernels

    @property
    def cpu_children(self) -> list[FunctionEvent]:
        """The events directly inside this one, by start."""
        if self._cpu_children is None:
            self._cpu_children = []
        return self._cpu_children

    @cpu_children.setter
    def cpu_children(self, children: list[FunctionEvent]) -> None:
        self._cpu_children = children

    def append_kernel(self, name: str, device: int, duration: float) -> None:
        """Add work on a device that this event launched; ``duration`` in microseconds.

        Raises: AssertionError for an event that did not run on the CPU.

        >>> from pullback_profiler import FunctionEvent
        >>> event = FunctionEvent(0, "launch", 1, 0.0, 4.0, use_device="cuda")
        >>> event.append_kernel("gemm", 0, 12.5)
        >>> event.device_time_total
        12.5
        """
        self._expect_on_cpu("append_kernel")
        self.kernels.append(Kernel(name, device, duration))

    def append_cpu_child(self, child: FunctionEvent) -> None:
        """Add an event directly inside this one; ``build_tree`` does so by time.

        Raises: AssertionError unless both are events that ran on the CPU.

        >>> from pullback_profiler import FunctionEvent
        >>> outer = FunctionEvent(0, "outer", 1, 0.0, 4.0)
        >>> outer.append_cpu_child(FunctionEvent(1, "inner", 1, 1.0, 2.0))
        >>> outer.self_cpu_time_total
        3.0
        """
        self._expect_on_cpu("append_cpu_child")
        _expect_event(child)._expect_on_cpu("append_cpu_child")
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent: FunctionEvent) -> None:
        """Set the event that this one is directly inside.

        Raises: AssertionError unless both are events that ran on the CPU.

        >>> from pullback_profiler import FunctionEvent
        >>> inner = FunctionEvent(1, "inner", 1, 1.0, 2.0)
        >>> inner.set_cpu_parent(FunctionEvent(0, "outer", 1, 0.0, 4.0))
        >>> inner.cpu_parent.name
        'outer'
        """
        self._expect_on_cpu("set_cpu_parent")
        _expect_event(parent)._expect_on_cpu("set_cpu_parent")
        self.cpu_parent = parent

    @property
    def cpu_time_total(self) -> float:
        """Microseconds from start to end; 0 for work on a device."""
        return self.time_range.elapsed_us() if self.device_type == CPU else 0

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds outside the children; 0 for work on a device and asynchronous events.

        Below zero only if children overlap each other in part, which one thread cannot record.
        """
        if self.is_async or self.device_type != CPU:
            return 0
        own = self.time_range.elapsed_us()
        for child in self._cpu_children or ():
            own -= child.cpu_time_total
        return 0 if -NANOSECOND < own < 0 else own  # rounding, where children fill the event

    @property
    def device_time_total(self) -> float:
        """Microseconds of the kernels launched here and in children, or of this work on a device.

        0 if no device was profiled, and for asynchronous events. The kernel of a legacy event
        covers its children.
        """
        if not self._has_device_time():
            return 0
        if self.device_type != CPU:
            return self.time_range.elapsed_us()
        total: float = 0
        pending = [self]  # not recursive: blocks may be nested deeply
        while pending:
            event = pending.pop()
            if event._has_device_time():
                total += event._kernel_time()
                if not event.is_legacy:
                    pending += event._cpu_children or ()
        return total

    @property
    def self_device_time_total(self) -> float:
        """Microseconds of ``device_time_total`` that are not the children's."""
        if not self._has_device_time():
            return 0
        if self.device_type != CPU:
            return self.time_range.elapsed_us()
        own = self._kernel_time()
        if self.is_legacy:
            own -= sum(child.device_time_total for child in self._cpu_children or ())
        return max(own, 0)

    @property
    def self_cpu_memory_usage(self) -> int:
        """Bytes of host memory taken outside the children; below zero if more was freed."""
        if self.is_async or self.device_type != CPU:
            return 0
        inside = sum(child.cpu_memory_usage for child in self._cpu_children or ())
        return self.cpu_memory_usage - inside

    @property
    def self_device_memory_usage(self) -> int:
        """Bytes of device memory taken outside the children; below zero if more was freed."""
        if self.is_async or self.device_type != CPU:
            return 0
        inside = sum(child.device_memory_usage for child in self._cpu_children or ())
        return self.device_memory_usage - inside

    @property
    def metadata_json(self) -> str | None:
        """Deprecated: ``event_metadata``."""
        warnings.warn(
            "`metadata_json` is deprecated, use `event_metadata` instead",
            FutureWarning,
            stacklevel=2,
        )
        return self._metadata_json

    def __repr__(self) -> str:
        span = self.time_range
        parts = [
            f"id={self.id} name={self.name!r} thread={self.thread}",
            f"start_us={span.start} end_us={span.end} cpu_time={self.cpu_time_str}",
        ]
        if self.use_device:
            parts.append(f"{self.use_device}_time={self.device_time_str}")
        if self._cpu_children:
            parts.append(f"cpu_children={[child.id for child in self._cpu_children]}")
        for name, usual in _SHOWN_UNLESS.items():
            value = getattr(self, name)
            if value != usual and value not in (None, [], ""):
                parts.append(f"{name}={value!r}")
        return f"<FunctionEvent {' '.join(parts)}>"

    def _has_device_time(self) -> bool:
        return bool(self.use_device) and not self.is_async

    def _kernel_time(self) -> float:
        return sum(kernel.duration for kernel in self._kernels or ())

    def _expect_on_cpu(self, method: str) -> None:
        if self.device_type != CPU:
            raise AssertionError(
                f"{method}(): expected device_type to be {CPU!r}, got {self.device_type!r}"
            )


# Attributes that a representation shows besides times where they differ from the default.
_SHOWN_UNLESS = {
    "overload_name": None,
    "input_shapes": None,
    "cpu_memory_usage": 0,
    "device_memory_usage": 0,
    "sequence_nr": -1,
    "node_id": -1,
    "device_type": CPU,
    "is_async": False,
    "is_remote": False,
    "is_legacy": False,
}


def _expect_event(value: object) -> FunctionEvent:
    if not isinstance(value, FunctionEvent):
        raise AssertionError(f"expected a FunctionEvent, got {type(value).__name__}")
    return value
