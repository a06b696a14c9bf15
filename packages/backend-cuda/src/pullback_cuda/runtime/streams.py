"""Streams and events, as torch.cuda has them, on pycuda's."""

from __future__ import annotations

import threading
from typing import Any

from pullback.backend import current_stream as core_current_stream
from pullback.backend import set_stream as core_set_stream
from pullback_cuda.runtime import contexts, devices, failures
from pullback_cuda.runtime.devices import device_number

POOL = 32  # streams that Stream() deals out in turn; of those below priority 0, two fewer

_dealing = threading.Lock()
_dealt: dict[tuple[int, bool], list] = {}


def _check(value, kind: type, function: str, argument: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(
            f"{function}(): argument {argument!r} must be {kind.__name__}, not "
            f"{type(value).__name__}"
        )


class Stream:
    """A queue of work of one device; works on different streams may overlap.

    ``device``: where; the current device by default. ``priority``: below 0 for a stream of the
    second kind that a device deals out; CUDA sees no difference, because pycuda makes streams
    of the usual priority only. A device has 32 streams of each kind, dealt out in turn.

    Tensors belong to the stream that was current when they were made. Use on another one must be
    ordered (``wait_stream``), and recorded (``Tensor.record_stream``).

    Raises: ValueError for devices of another type; RuntimeError where there is no device.

    >>> import pullback as pb
    >>> side = pb.cuda.Stream()
    >>> with pb.cuda.stream(side):
    ...     y = pb.eye(3, device="cuda") * 2
    >>> pb.cuda.current_stream().wait_stream(side)
    >>> y.sum().item()
    6.0
    """

    __slots__ = ("_number", "device_index", "priority")

    def __init__(self, device=None, priority: int = 0):
        if not isinstance(priority, int) or isinstance(priority, bool):
            raise TypeError(f"Stream(): argument 'priority' must be int, not {priority!r}")
        number = device_number(device)
        found = devices.started(number)
        with _dealing:
            made = _dealt.setdefault((number, priority < 0), [0])
            turn = made[0] % (POOL - 2 * (priority < 0))
            if len(made) - 1 <= turn:
                made.append(found.add_stream())
            made[0] += 1
            self._number = made[1 + turn]
        self.device_index = number
        self.priority = min(priority, 0)

    @classmethod
    def _of(cls, device: int, number: int) -> Stream:
        made = cls.__new__(cls)
        made._number = number
        made.device_index = device
        made.priority = 0
        return made

    @property
    def device(self):
        """The device that the stream belongs to."""
        import pullback as pb

        return pb.device("cuda", self.device_index)

    @property
    def cuda_stream(self) -> int:
        """CUDA's handle, for other libraries."""
        return self.pycuda.handle

    @property
    def pycuda(self):
        """pycuda's Stream."""
        return contexts.stream_at(self.device_index, self._number)

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version and CUDA's handle."""
        return 0, self.cuda_stream

    def query(self) -> bool:
        """Return whether all work given to the stream is done."""
        with contexts.Current(self.device_index):
            return self.pycuda.is_done()

    def synchronize(self) -> None:
        """Wait until all work given to the stream is done.

        Raises: the failure of earlier work, such as IndexError.
        """
        with contexts.Current(self.device_index):
            self.pycuda.synchronize()
        failures.raise_failure(self.device_index)

    def wait_stream(self, stream: Stream) -> None:
        """Let later work of this stream begin after the other's work so far."""
        _check(stream, Stream, "wait_stream", "stream")
        devices.started(self.device_index).wait(
            self._number, devices.started(stream.device_index), stream._number
        )

    def wait_event(self, event: Event) -> None:
        """Let later work of this stream begin after an event."""
        _check(event, Event, "wait_event", "event")
        event.wait(self)

    def record_event(self, event: Event | None = None) -> Event:
        """Mark this point of the stream's work by an event, a new one by default; return it."""
        event = Event() if event is None else event
        _check(event, Event, "record_event", "event")
        event.record(self)
        return event

    def __eq__(self, other) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return (self.device_index, self._number) == (other.device_index, other._number)

    def __hash__(self) -> int:
        return hash((self.device_index, self._number))

    def __repr__(self) -> str:
        return f"<pullback.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class Event:
    """A point in the work of a stream.

    ``enable_timing``: events that know the time, for ``elapsed_time``. ``blocking`` and
    ``interprocess`` are torch's; waiting never spins here, and events are for one process.

    Raises: RuntimeError for ``interprocess=True``.

    >>> import pullback as pb
    >>> start, end = pb.cuda.Event(True), pb.cuda.Event(True)
    >>> start.record(); y = pb.rand(100, device="cuda").exp(); end.record()
    >>> end.synchronize()
    >>> start.elapsed_time(end) >= 0        # milliseconds
    True
    """

    __slots__ = ("__weakref__", "_device", "_event", "_timing")

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ):
        if interprocess:
            raise RuntimeError("Event(): events for several processes are not supported")
        self._timing = bool(enable_timing)
        self._event: Any = None
        self._device: Any = None  # the Device of the first stream that recorded it

    @property
    def enable_timing(self) -> bool:
        """Whether the event knows the time."""
        return self._timing

    def __reduce__(self):
        raise TypeError("Event objects cannot be copied or pickled: record another one")

    def record(self, stream: Stream | None = None) -> None:
        """Mark this point of a stream's work, the current stream's by default.

        Raises: RuntimeError if the event belongs to another device already.
        """
        stream = current_stream() if stream is None else stream
        _check(stream, Stream, "record", "stream")
        found = devices.started(stream.device_index)
        if self._device not in (None, found):
            raise RuntimeError(
                f"Event device cuda:{self._device.number} does not match recording stream's "
                f"device cuda:{found.number}."
            )
        if self._event is None:
            self._event = found.take_event(self._timing)
            self._device = found
        with contexts.Current(found.number):
            self._event.record(stream.pycuda)

    def wait(self, stream: Stream | None = None) -> None:
        """Let later work of a stream begin after this point."""
        stream = current_stream() if stream is None else stream
        _check(stream, Stream, "wait", "stream")
        if self._event is not None:
            with contexts.Current(stream.device_index):
                stream.pycuda.wait_for_event(self._event)

    def query(self) -> bool:
        """Return whether the work before this point is done."""
        if self._event is None:
            return True
        with contexts.Current(self._device.number):
            return self._event.query()

    def synchronize(self) -> None:
        """Wait until the work before this point is done."""
        if self._event is not None:
            with contexts.Current(self._device.number):
                self._event.synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Return the milliseconds from this point to another one.

        Raises: RuntimeError for events that do not know the time, or were not recorded.
        """
        _check(end_event, Event, "elapsed_time", "end_event")
        if not (self._timing and end_event._timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self._event is None or end_event._event is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        if self._device is not end_event._device:
            raise RuntimeError("Both events must be recorded on the same device.")
        if not (self.query() and end_event.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        with contexts.Current(self._device.number):
            return self._event.time_till(end_event._event)

    def __del__(self) -> None:
        # pycuda can destroy events on one thread only, so they are kept for the next Event.
        if getattr(self, "_event", None) is not None:
            self._device.give_event(self._event, self._timing)

    def __repr__(self) -> str:
        if self._event is None:
            return "<pullback.cuda.Event uninitialized>"
        return f"<pullback.cuda.Event on cuda:{self._device.number}>"


def current_stream(device=None) -> Stream:
    """Return the stream that this thread's work on a device goes to."""
    number = device_number(device)
    devices.started(number)
    return Stream._of(number, contexts.current(number))


def default_stream(device=None) -> Stream:
    """Return the stream that is current until another one is made so."""
    number = device_number(device)
    devices.started(number)
    return Stream._of(number, 0)


def set_stream(stream: Stream | None) -> None:
    """Make a stream the current one of this thread, and its device the current one.

    None changes nothing.
    """
    import pullback as pb

    if stream is not None:
        _check(stream, Stream, "set_stream", "stream")
        pb.cuda.set_device(stream.device_index)
        core_set_stream(stream.device, stream.cuda_stream)


class StreamContext:
    """A block in which a stream is the current one, and its device the current device."""

    def __init__(self, stream: Stream | None):
        self.stream = stream

    def __enter__(self) -> Stream | None:
        import pullback as pb

        if self.stream is not None:
            self._device = pb.cuda.current_device()
            pb.cuda.set_device(self.stream.device_index)
            self._before = core_current_stream(self.stream.device)
            set_stream(self.stream)
        return self.stream

    def __exit__(self, kind, value, trace) -> None:
        import pullback as pb

        if self.stream is not None:
            core_set_stream(self.stream.device, self._before)
            pb.cuda.set_device(self._device)


def stream(stream: Stream | None) -> StreamContext:
    """Return a block in which a stream is the current one; None changes nothing.

    Raises: TypeError for anything else.
    """
    if stream is not None:
        _check(stream, Stream, "stream", "stream")
    return StreamContext(stream)
