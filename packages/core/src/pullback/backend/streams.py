"""Streams and events of any device; those of hosts have one queue, which is always done."""

from __future__ import annotations

from typing import Any

from pullback._c.device.device import device as _device
from pullback._c.device.device import get_default_device

__all__ = ["Event", "Stream"]


def _place(name: str, given: Any) -> Any:
    if given is None:
        return get_default_device()
    if isinstance(given, bool) or not (
        isinstance(given, (str, _device)) or hasattr(given, "__index__")
    ):
        raise TypeError(
            f"{name}(): argument 'device' (position 1) must be pullback.device, not "
            f"{type(given).__name__}"
        )
    return _device(given)


def _unsupported(device: Any) -> RuntimeError:
    return RuntimeError(f"{device.type} backend doesn't support events.")


class Stream:
    """A queue of work of a device; for ``cuda`` a ``pullback.cuda.Stream`` is made.

    Ops on a host end before they return, so its one stream is always done.

    Raises: TypeError for anything but a device; RuntimeError where there is none.

    >>> import pullback
    >>> stream = pullback.Stream("ref")
    >>> stream.query(), stream == pullback.Stream("ref")
    (True, True)
    """

    __slots__ = ("device",)
    stream_id = 0
    device: Any

    def __new__(cls, device: Any = None, *, priority: int = 0) -> Any:
        place = _place("Stream", device)
        if place.type == "cuda":
            from pullback import cuda

            return cuda.Stream(place, priority)
        made = object.__new__(cls)
        made.device = place
        return made

    @property
    def device_index(self) -> int:
        return -1 if self.device.index is None else self.device.index

    def query(self) -> bool:
        """Return True: all work is done."""
        return True

    def synchronize(self) -> None:
        """Return at once: all work is done."""

    def record_event(self, event: Any = None) -> Any:
        """Raise RuntimeError: hosts have no events to record."""
        raise _unsupported(self.device)

    wait_event = wait_stream = record_event

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        return None

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Stream) and self.device == other.device

    def __hash__(self) -> int:
        return hash(("Stream", str(self.device)))

    def __repr__(self) -> str:
        return (
            f"pullback.Stream device_type={self.device.type}, device_index={self.device_index}, "
            f"stream_id=0"
        )


class Event:
    """A point in the work of a stream; for ``cuda`` a ``pullback.cuda.Event`` is made.

    Hosts have no events: one of theirs is always reached, and cannot be recorded.

    Raises: TypeError for anything but a device; RuntimeError where there is none.

    >>> import pullback
    >>> pullback.Event("ref").query()
    True
    """

    __slots__ = ("device", "enable_timing")
    event_id = 0
    device: Any
    enable_timing: bool

    def __new__(
        cls,
        device: Any = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> Any:
        place = _place("Event", device)
        if place.type == "cuda":
            from pullback import cuda

            return cuda.Event(enable_timing, blocking, interprocess)
        made = object.__new__(cls)
        made.device, made.enable_timing = place, enable_timing
        return made

    def query(self) -> bool:
        """Return True: there is no work to wait for."""
        return True

    def synchronize(self) -> None:
        """Return at once: there is no work to wait for."""

    def record(self, stream: Any = None) -> None:
        """Raise RuntimeError: hosts have no events to record."""
        raise _unsupported(self.device)

    wait = record

    def elapsed_time(self, end_event: Any) -> float:
        """Raise: ValueError for events without timing, RuntimeError as they cannot be recorded."""
        if not (self.enable_timing and getattr(end_event, "enable_timing", False)):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        raise _unsupported(self.device)

    def __repr__(self) -> str:
        index = -1 if self.device.index is None else self.device.index
        return f"pullback.Event device_type={self.device.type}, device_index={index}, event_id=0"
