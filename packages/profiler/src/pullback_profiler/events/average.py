"""Sums over events of one key."""

from __future__ import annotations

from pullback_profiler.events.formatted_times import FormattedTimesMixin
from pullback_profiler.events.function_event import CPU, FunctionEvent


class FunctionEventAvg(FormattedTimesMixin):
    """The sums over ``count`` events of one ``key``, and the other attributes of the first one.

    Times are in microseconds, memory in bytes, as in a ``FunctionEvent``; ``cpu_time`` and
    ``device_time`` are per call.

    >>> from pullback_profiler import FunctionEvent, FunctionEventAvg
    >>> average = FunctionEventAvg()
    >>> for end_us in (3.0, 5.0):
    ...     average += FunctionEvent(0, "mul", 1, 0.0, end_us)
    >>> average
    <FunctionEventAvg key='mul' count=2 self_cpu_time=8.000us cpu_time=4.000us>
    """

    def __init__(self) -> None:
        self.key: str | None = None
        self.count = 0
        self.cpu_time_total: float = 0
        self.device_time_total: float = 0
        self.self_cpu_time_total: float = 0
        self.self_device_time_total: float = 0
        self.cpu_memory_usage = 0
        self.device_memory_usage = 0
        self.self_cpu_memory_usage = 0
        self.self_device_memory_usage = 0
        self.flops = 0
        self.node_id = -1
        self.is_async = False
        self.is_remote = False
        self.is_legacy = False
        self.is_user_annotation = False
        self.use_device: str | None = None
        self.device_type = CPU
        self.scope: int | None = None
        self.input_shapes: list[list[int]] | str | None = None
        self.overload_name: str | None = None
        self.stack: list[str] | None = None
        self.cpu_children: list[FunctionEvent] | None = None
        self.cpu_parent: FunctionEvent | None = None

    def add(self, other: FunctionEvent | FunctionEventAvg) -> FunctionEventAvg:
        """Add an event or an average of the same key, and return this average.

        The first one gives the key and what is not summed.
        Raises: AssertionError for another key, and for what is neither.

        >>> from pullback_profiler import FunctionEvent, FunctionEventAvg
        >>> FunctionEventAvg().add(FunctionEvent(0, "mul", 1, 0.0, 4.0)).cpu_time_total
        4.0
        """
        if not isinstance(other, (FunctionEvent, FunctionEventAvg)):
            raise AssertionError(
                f"add(): expected a FunctionEvent or FunctionEventAvg, got {type(other).__name__}"
            )
        if self.key is None:
            for name in _OF_THE_FIRST:
                setattr(self, name, getattr(other, name))
        if other.key != self.key:
            raise AssertionError(f"add(): expected the key {self.key!r}, got {other.key!r}")
        self.accumulate(other)
        return self

    __iadd__ = add

    def accumulate(self, other: FunctionEvent | FunctionEventAvg) -> None:
        """Add the numbers of an event or an average, whatever its key.

        >>> from pullback_profiler import FunctionEvent, FunctionEventAvg
        >>> total = FunctionEventAvg()
        >>> total.accumulate(FunctionEvent(0, "mul", 1, 0.0, 4.0))
        >>> total.accumulate(FunctionEvent(1, "add", 1, 5.0, 8.0))
        >>> total.count, total.cpu_time_total
        (2, 7.0)
        """
        self.count += other.count
        self.cpu_time_total += other.cpu_time_total
        self.device_time_total += other.device_time_total
        self.self_cpu_time_total += other.self_cpu_time_total
        self.self_device_time_total += other.self_device_time_total
        self.cpu_memory_usage += other.cpu_memory_usage
        self.device_memory_usage += other.device_memory_usage
        self.self_cpu_memory_usage += other.self_cpu_memory_usage
        self.self_device_memory_usage += other.self_device_memory_usage
        self.flops += other.flops or 0

    def __repr__(self) -> str:
        parts = [
            f"key={self.key!r} count={self.count}",
            f"self_cpu_time={self.self_cpu_time_total_str} cpu_time={self.cpu_time_str}",
        ]
        if self.use_device:
            parts.append(
                f"self_{self.use_device}_time={self.self_device_time_total_str} "
                f"{self.use_device}_time={self.device_time_str}"
            )
        if self.input_shapes:
            parts.append(f"input_shapes={self.input_shapes}")
        for name in ("cpu_memory_usage", "device_memory_usage"):
            if getattr(self, name):
                parts.append(f"{name}={getattr(self, name)}")
        return f"<FunctionEventAvg {' '.join(parts)}>"


# Attributes that an average takes from the first event.
_OF_THE_FIRST = (
    "key",
    "node_id",
    "is_async",
    "is_remote",
    "is_legacy",
    "is_user_annotation",
    "use_device",
    "device_type",
    "scope",
    "input_shapes",
    "overload_name",
    "stack",
    "cpu_children",
    "cpu_parent",
)
