"""``expect``: limits on what a block runs, for tests of programs."""

from __future__ import annotations

import bisect
import contextlib
import functools
import inspect
import itertools
import warnings
from collections import Counter
from typing import Any, NamedTuple

from pullback.backend import fallbacks
from pullback_profiler.autograd_profiler import profile
from pullback_profiler.events.function_event import FunctionEvent
from pullback_profiler.events.util import format_memory

OUTSIDE = "(outside of ops)"
ROWS = 20  # of the table in an error


class Row(NamedTuple):
    """What one op did in a block: its calls and the bytes that were allocated in them."""

    name: str
    calls: int
    nbytes: int


class expect(contextlib.ContextDecorator):
    """Context manager or decorator: raise AssertionError if the block runs more than is allowed.

    ``max_ops`` limits the ops that this thread and its backward nodes call; what runs inside of
    another op does not count. ``max_bytes`` limits the bytes that are allocated in total,
    ``max_peak`` by how many bytes memory in use rises above that at the start, on all devices
    together. ``no_fallback=True`` forbids that the host stands in for a missing kernel, in any
    thread. ``max_kernels`` limits the kernels launched on ``device``, which must be one whose
    kernels can be timed. The error has a table of what ran, the largest first.

    It records with the profiler, one at a time. When the block ends, ``ops``, ``nbytes``,
    ``peak``, ``kernels`` and ``fallbacks`` tell what it did; an exception of the block passes.
    Raises: TypeError or ValueError for a limit that is not an int of at least 0; RuntimeError
    inside a profile, and for ``max_kernels`` without such a device; TypeError when it decorates a
    generator, whose code runs between those of its caller.

    >>> import pullback
    >>> from pullback.profiler import expect
    >>> with expect(max_ops=2, max_bytes=16) as ran:
    ...     y = pullback.ones(2).exp()
    >>> ran.ops, ran.nbytes, ran.peak
    (2, 16, 16)
    >>> with expect(max_ops=1):
    ...     y = pullback.ones(2).exp()
    Traceback (most recent call last):
    AssertionError: expect(): ran 2 ops, which is more than max_ops=1
    ...
    """

    def __init__(
        self,
        max_ops: int | None = None,
        max_bytes: int | None = None,
        max_peak: int | None = None,
        no_fallback: bool = False,
        max_kernels: int | None = None,
        device: str = "cuda",
    ) -> None:
        limits = {
            "max_ops": max_ops,
            "max_bytes": max_bytes,
            "max_peak": max_peak,
            "max_kernels": max_kernels,
        }
        for name, limit in limits.items():
            if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
                raise TypeError(
                    f"expect(): argument {name!r} must be int or None, not {type(limit).__name__}"
                )
            if limit is not None and limit < 0:
                raise ValueError(f"expect(): argument {name!r} must be at least 0, got {limit}")
        self.limits = limits
        self.no_fallback = no_fallback
        self.device = device
        self.ops = self.nbytes = self.peak = self.kernels = 0
        self.fallbacks: dict[tuple[str, str], tuple[int, int]] = {}
        self.rows: list[Row] = []

    def __call__(self, func: Any) -> Any:
        """Return a function whose calls are blocks, of a coroutine until it is done."""
        if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
            raise TypeError(
                f"expect(): cannot decorate the generator function {func.__name__}(): use a with "
                f"block inside of it"
            )
        if not inspect.iscoroutinefunction(func):
            return super().__call__(func)

        @functools.wraps(func)
        async def run(*args: Any, **kwargs: Any) -> Any:
            with self._recreate_cm():
                return await func(*args, **kwargs)

        return run

    def _recreate_cm(self) -> expect:
        """Return a new one for each call of a decorated function."""
        return expect(**self.limits, no_fallback=self.no_fallback, device=self.device)

    def __enter__(self) -> expect:
        use_device = None if self.limits["max_kernels"] is None else self.device
        if use_device == "cpu":
            raise RuntimeError("expect(): max_kernels cannot be used: the CPU launches no kernels")
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a device that cannot be timed
            try:
                self._profile = profile(profile_memory=True, use_device=use_device)
            except UserWarning as warning:
                raise RuntimeError(f"expect(): max_kernels cannot be used: {warning}") from None
        self._before = fallbacks()
        self._profile.__enter__()
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        self._profile.__exit__(kind, value, traceback)
        self._read(self._profile)
        if kind is None and (problems := self._problems()):
            raise AssertionError("\n".join(["expect(): " + "; ".join(problems), *self._table()]))

    def _read(self, profiled: profile) -> None:
        """Count what was recorded."""
        events = profiled.function_events
        called = [event for event in events if is_op(event) and not inside_an_op(event)]
        self.ops = len(called)
        self.kernels = sum(event.activity_type == "kernel" for event in events)
        changes = [change.nbytes for change in profiled._results().allocations]
        self.nbytes = sum(change for change in changes if change > 0)
        self.peak = max(itertools.accumulate(changes), default=0)
        self.peak = max(self.peak, 0)
        self.rows = rows_of(called, profiled)
        self.fallbacks = {}
        for key, count in fallbacks().items():
            calls, nbytes = self._before.get(key, (0, 0))
            if count.calls > calls:
                self.fallbacks[key] = (count.calls - calls, count.bytes - nbytes)

    def _problems(self) -> list[str]:
        """Return a text for each limit that was exceeded."""
        found = []
        for name, ran, text in (
            ("max_ops", self.ops, f"ran {self.ops} ops"),
            ("max_bytes", self.nbytes, f"allocated {self.nbytes} bytes in total"),
            ("max_peak", self.peak, f"took {self.peak} bytes at its peak"),
            ("max_kernels", self.kernels, f"launched {self.kernels} kernels"),
        ):
            limit = self.limits[name]
            if limit is not None and ran > limit:
                found.append(f"{text}, which is more than {name}={limit}")
        if self.no_fallback:
            found += [
                f"{op!r} on {device} ran on the host {calls} times and copied {nbytes} bytes, "
                f"with no_fallback=True"
                for (op, device), (calls, nbytes) in self.fallbacks.items()
            ]
        return found

    def _table(self) -> list[str]:
        """Return the lines of the table: by calls where these are too many, else by bytes."""
        limit = self.limits["max_ops"]
        by_calls = limit is not None and self.ops > limit
        rows = sorted(
            self.rows,
            key=lambda row: (row.calls, row.nbytes) if by_calls else (row.nbytes, row.calls),
            reverse=True,
        )
        width = max([len(row.name) for row in rows[:ROWS]], default=0)
        lines = [f"  {'Name':<{width}}  {'# of Calls':>12}  {'Allocated':>12}"] if rows else []
        for row in rows[:ROWS]:
            lines.append(f"  {row.name:<{width}}  {row.calls:>12}  {format_memory(row.nbytes):>12}")
        if len(rows) > ROWS:
            lines.append(f"  and {len(rows) - ROWS} more names")
        return lines


def is_op(event: FunctionEvent) -> bool:
    """Return True for a call of an op; nodes, Functions, blocks, modules and kernels are none.

    >>> import pullback
    >>> from pullback_profiler import profile
    >>> with profile() as p:
    ...     y = pullback.ones(2)
    >>> is_op(p.function_events[0])
    True
    """
    plain = event.activity_type == "cpu_op" and event.scope == 0
    return plain and "::" in event.name and not event.name.startswith("autograd::engine::")


def inside_an_op(event: FunctionEvent) -> bool:
    """Return True for an op that another op calls, as a composite or in place of a kernel."""
    parent = event.cpu_parent
    while parent is not None:
        if is_op(parent):
            return True
        parent = parent.cpu_parent
    return False


def rows_of(called: list[FunctionEvent], profiled: profile) -> list[Row]:
    """Return calls and allocated bytes by the name of ops that are not inside others."""
    recording = profiled._recording
    assert recording is not None
    calls = Counter(event.name for event in called)
    nbytes: Counter[str] = Counter()
    lanes: dict[int, list[FunctionEvent]] = {}
    for event in called:
        lanes.setdefault(event.thread, []).append(event)
    for change in profiled._results().allocations:
        if change.nbytes > 0:
            at = (change.time - recording.started) / 1000
            lane = lanes.get(change.thread, [])
            place = bisect.bisect_right(lane, at, key=lambda event: event.time_range.start) - 1
            inside = place >= 0 and at <= lane[place].time_range.end
            nbytes[lane[place].name if inside else OUTSIDE] += change.nbytes
    names = dict.fromkeys([*calls, *nbytes])
    return [Row(name, calls[name], nbytes[name]) for name in names]
