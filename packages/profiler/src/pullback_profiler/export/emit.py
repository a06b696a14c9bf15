"""Ranges for other tools: every op and node as an NVTX range or an ITT task."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import ClassVar

from pullback_profiler.export.range_backends import IttBackend, NvtxBackend, RangeBackend
from pullback_profiler.export.ranges import range_text
from pullback_profiler.record.devices import synchronize_devices
from pullback_profiler.record.recording import NODE, event_name


class _Inside:
    """Marks a tool as taken while a context holds it: an interrupt leaves nothing taken."""

    __slots__ = ("__weakref__",)


_inside: dict[str, Callable[[], _Inside | None]] = {}  # by tool
_taking = threading.Lock()


def _nobody() -> None:
    pass


def _forget() -> None:
    """Let a forked process enter, even if another thread held the tool at the fork."""
    global _taking
    _taking = threading.Lock()
    _inside.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget)


class _OpenRanges(threading.local):
    """Pushes ranges to a sink and knows which ones the calling thread has open."""

    def __init__(self, sink: RangeBackend) -> None:
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
    """The base class of both context managers; each has its own range backend."""

    _tool: ClassVar[str]
    _default_backend: ClassVar[type]

    def __init__(
        self, enabled: bool = True, record_shapes: bool = False, *, sink: RangeBackend | None = None
    ) -> None:
        self.enabled = enabled
        self.record_shapes = record_shapes
        self.entered = False
        self._sink = sink
        self._leave = ExitStack()
        self._own: _Inside | None = None
        self._process = 0

    def __enter__(self):
        if not self.enabled:
            return self
        if self.entered:
            raise RuntimeError(self._not_reentrant())
        self._process = os.getpid()
        try:
            self._take()
            sink = self._default_backend() if self._sink is None else self._sink
            synchronize_devices()
            if getattr(sink, "listening", True):
                self._attach(sink, self._leave)
            self._leave.callback(synchronize_devices)
            self.entered = True
        except BaseException:
            self._end()
            raise
        return self

    def _take(self) -> None:
        """Take the tool. Raises: RuntimeError while another context has it."""
        self._own = _Inside()
        with _taking:
            if _inside.get(self._tool, _nobody)() is not None:
                raise RuntimeError(self._not_reentrant())
            _inside[self._tool] = weakref.ref(self._own)

    def _end(self) -> None:
        try:
            self._leave.close()
        finally:
            self._own = None

    def _not_reentrant(self) -> str:
        return f"{self._tool} annotation context manager is not reentrant"

    def _attach(self, sink: RangeBackend, stack: ExitStack) -> None:
        """Begin to push ranges to the sink; the stack gets the calls that end it."""
        from pullback_profiler.record.python_observer import attach, detach

        ranges = _OpenRanges(sink)
        stack.callback(ranges.end_all)
        stack.callback(detach, attach(ranges.begin, ranges.end, self.record_shapes))

    def __exit__(self, *error: object) -> None:
        if self._process == os.getpid():  # a forked process has not entered
            self._end()

    def __del__(self) -> None:
        """End a context that was forgotten inside its block."""
        if getattr(self, "_process", 0) == os.getpid():
            self._end()


class emit_nvtx(_Emit):
    """A context in which every op and every node of a backward is an NVTX range, on all threads.

    NVIDIA's tools show them beside the kernels that they launch; ``range_text`` says how a range
    is named. With ``record_shapes`` the name holds the sizes of the arguments. ``sink`` receives
    the ranges instead of NVTX: an object with ``push(text)`` and ``pop()``, which are called on the
    thread that runs the op and nest properly. Entering and leaving wait for all devices.
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
    ...     y = x.exp()
    pullback::exp, sizes = [[2, 3]]
    end
    """

    _tool = "NVTX"
    _default_backend = NvtxBackend


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
    _default_backend = IttBackend
