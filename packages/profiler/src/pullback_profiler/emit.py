"""Ranges for outside tools: every op and node as an NVTX range or an ITT task."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import ClassVar

from pullback_profiler.collect import NODE, event_name
from pullback_profiler.devices import synchronize_devices
from pullback_profiler.ranges import range_text
from pullback_profiler.sinks import IttSink, NvtxSink, Sink


class _OpenRanges(threading.local):
    """Passes ranges on to a sink and knows which ones the calling thread has open."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.pushed: list[bool] = []  # for each open range; False where the sink raised

    def begin(
        self, kind: int, name: str, sequence: int, forward_thread: int, sizes: list | None
    ) -> None:
        self.pushed.append(False)
        shown = event_name(kind, name)
        self.sink.push(range_text(shown, sequence, stashed=kind == NODE, sizes=sizes))
        self.pushed[-1] = True

    def end(self) -> None:
        if self.pushed and self.pushed.pop():
            self.sink.pop()

    def end_all(self) -> None:
        """End what the calling thread left open."""
        while self.pushed:
            self.end()


class _Emit:
    """What both context managers do; they differ in where the ranges go."""

    _tool: ClassVar[str]
    _default_sink: ClassVar[type]
    _taken: ClassVar[threading.Lock]

    def __init__(
        self, enabled: bool = True, record_shapes: bool = False, *, sink: Sink | None = None
    ) -> None:
        self.enabled = enabled
        self.record_shapes = record_shapes
        self.entered = False
        self._sink = sink

    def __enter__(self):
        if not self.enabled:
            return self
        with ExitStack() as stack:
            if self.entered or not self._taken.acquire(blocking=False):
                raise RuntimeError(f"{self._tool} annotation context manager is not reentrant")
            stack.callback(self._taken.release)
            sink = self._default_sink() if self._sink is None else self._sink
            synchronize_devices()
            if getattr(sink, "listening", True):
                self._attach(sink, stack)
            stack.callback(synchronize_devices)
            self._leave = stack.pop_all()
        self.entered = True
        return self

    def _attach(self, sink: Sink, stack: ExitStack) -> None:
        """Begin to pass ranges to the sink; the stack gets what ends it."""
        from pullback_profiler._tap import attach, detach

        ranges = _OpenRanges(sink)
        stack.callback(ranges.end_all)
        stack.callback(detach, attach(ranges.begin, ranges.end, self.record_shapes))

    def __exit__(self, *error: object) -> None:
        if self.enabled:
            self._leave.close()


class emit_nvtx(_Emit):
    """A context in which every op and every node of a backward is an NVTX range, on all threads.

    NVIDIA's tools show them beside the kernels that they launch; ``range_text`` says how a range
    is named. With ``record_shapes`` the name holds the sizes of the arguments. ``sink`` takes the
    ranges instead of NVTX: an object with ``push(text)`` and ``pop()``, which are called on the
    thread that runs the op and nest properly. All devices are waited for on entering and leaving.
    Ranges cost nothing where no tool is attached, and about 3 us each where one is.
    ``enabled=False`` does nothing. Not reentrant: an object is entered once, and one at a time.

    Raises: RuntimeError when entered again, or without the package ``nvtx`` and a sink.

    >>> class Lines:
    ...     def push(self, text):
    ...         print(text)
    ...     def pop(self):
    ...         print("end")
    >>> import pullback
    >>> x = pullback.ones(2, 3)
    >>> with emit_nvtx(record_shapes=True, sink=Lines()):
    ...     y = x.neg()
    pullback::neg, sizes = [[2, 3]]
    end
    """

    _tool = "NVTX"
    _default_sink = NvtxSink
    _taken = threading.Lock()


class emit_itt(_Emit):
    """A context in which every op and every node of a backward is an ITT task, on all threads.

    Intel's VTune shows them. The arguments, the names of the tasks and the rules are those of
    ``emit_nvtx``; the library is the package ``ittapi``.

    Raises: RuntimeError when entered again, or without the package ``ittapi`` and a sink.

    >>> with emit_itt(enabled=False) as emitting:
    ...     emitting.enabled
    False
    """

    _tool = "ITT"
    _default_sink = IttSink
    _taken = threading.Lock()
