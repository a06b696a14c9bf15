"""Controls the fake CUDA driver from Python, and reports what happened in it.

control.h says what each function does; this gives them names, types and errors of Python.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

COUNTERS = (
    "allocations",
    "frees",
    "live_blocks",
    "live_bytes",
    "peak_bytes",
    "bad_frees",
    "leaked_blocks",
    "overruns",
    "writes_after_free",
    "launches",
    "copies",
    "copied_bytes",
    "memsets",
    "live_streams",
    "live_events",
    "live_modules",
    "live_contexts",
)
CODES = {
    "INVALID_VALUE": 1,
    "OUT_OF_MEMORY": 2,
    "NO_DEVICE": 100,
    "INVALID_CONTEXT": 201,
    "INVALID_HANDLE": 400,
    "NOT_READY": 600,
    "ILLEGAL_ADDRESS": 700,
    "LAUNCH_FAILED": 719,
    "UNKNOWN": 999,
}


def code(error: int | str) -> int:
    """Return CUDA's number of an error given by number or by name, such as OUT_OF_MEMORY."""
    return error if isinstance(error, int) else CODES[error.removeprefix("CUDA_ERROR_")]


class Launch(NamedTuple):
    """One launch of a kernel; ``stream`` is a number that the driver gave the stream."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    device: int
    stream: int


class _Launched(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_size_t),
        ("device", ctypes.c_int),
        ("stream", ctypes.c_uint64),
    )


class Control:
    """The fake driver that is loaded in this process."""

    def __init__(self, driver: ctypes.CDLL, folder: Path) -> None:
        self.folder = folder
        self._driver = driver
        text, number, wide = ctypes.c_char_p, ctypes.c_int, ctypes.c_int64
        for name, result, arguments in (
            ("reset", None, ()),
            ("set_device_count", number, (number,)),
            ("set_memory", number, (number, wide)),
            ("fail", number, (text, ctypes.c_long, number, ctypes.c_long)),
            ("fail_nothing", None, ()),
            ("break", number, (number, number)),
            ("set_deferred", number, (number,)),
            ("pending", wide, ()),
            ("run_all", None, ()),
            ("set_block_limit", number, (number,)),
            ("counter", wide, (text,)),
            ("calls", wide, (text,)),
            ("check_memory", wide, ()),
            ("launch", ctypes.POINTER(_Launched), (wide,)),
        ):
            function = getattr(driver, f"fake_{name}")
            function.restype, function.argtypes = result, arguments

    def _try(self, result: int, problem: str) -> None:
        if result:
            raise ValueError(problem)

    def reset(self) -> None:
        """Forget failures, counts and launches, run what is queued, and stop deferring."""
        self._driver.fake_reset()

    def set_device_count(self, count: int) -> None:
        """Say how many devices there are; with none, cuInit fails as the real one."""
        self._try(self._driver.fake_set_device_count(count), f"{count} devices are not possible")

    def set_memory(self, nbytes: int, device: int = 0) -> None:
        """Say how much memory a device has; what is beyond is out of memory."""
        self._try(self._driver.fake_set_memory(device, nbytes), f"no device {device}")

    def fail(self, name: str, error: int | str, nth: int = 1, times: int = 1) -> None:
        """Let calls of an entry point fail: the nth from now, and ``times`` in all (-1: ever).

        The name is as in CUDA's manual, without the version behind it; "*" stands for all.
        """
        done = self._driver.fake_fail(name.encode(), nth, code(error), times)
        self._try(done, "too many failures are asked for, or nth is less than 1")

    def fail_nothing(self) -> None:
        """Forget the failures that were asked for."""
        self._driver.fake_fail_nothing()

    @contextlib.contextmanager
    def failing(self, name: str, error: int | str, nth: int = 1, times: int = 1) -> Iterator[None]:
        """Ask for failures inside a ``with`` block."""
        self.fail(name, error, nth, times)
        try:
            yield
        finally:
            self.fail_nothing()

    def break_device(self, error: int | str, device: int = 0) -> None:
        """Let everything on a device fail from now on, as after a kernel's bad access."""
        self._try(self._driver.fake_break(device, code(error)), f"no device {device}")

    def mend_device(self, device: int = 0) -> None:
        """End what ``break_device`` began."""
        self._try(self._driver.fake_break(device, 0), f"no device {device}")

    def set_deferred(self, mode: int | bool) -> None:
        """Choose when work runs: 0 immediately, 1 when a call waits for it, 2 see control.h."""
        self._try(self._driver.fake_set_deferred(int(mode)), f"no mode {mode}")

    @contextlib.contextmanager
    def deferred(self, mode: int = 1) -> Iterator[None]:
        """Defer work inside a ``with`` block, and run what is left at its end."""
        self.set_deferred(mode)
        try:
            yield
        finally:
            self.set_deferred(0)

    def pending(self) -> int:
        """Return how many enqueued tasks have not run."""
        return self._driver.fake_pending()

    def run_all(self) -> None:
        """Run all work that is queued, on all streams."""
        self._driver.fake_run_all()

    def set_block_limit(self, threads: int) -> None:
        """Say how many threads a block of any kernel may have, as __launch_bounds__ does."""
        self._try(self._driver.fake_set_block_limit(threads), "blocks have 1 to 1024 threads")

    def counter(self, name: str) -> int:
        """Return one counter, see ``COUNTERS``."""
        value = self._driver.fake_counter(name.encode())
        if value < 0:
            raise ValueError(f"no counter {name!r}; there are {', '.join(COUNTERS)}")
        return value

    def counters(self) -> dict[str, int]:
        """Return all counters."""
        return {name: self.counter(name) for name in COUNTERS}

    def calls(self, name: str) -> int:
        """Return how often an entry point was called since the last ``reset``."""
        return self._driver.fake_calls(name.encode())

    def launches(self, most: int = 64) -> list[Launch]:
        """Return the last launches, the oldest first; 64 are kept."""
        found: list[Launch] = []
        for back in range(most):
            of = self._driver.fake_launch(back)
            if not of:
                break
            of = of.contents
            found.append(
                Launch(
                    of.name.decode(),
                    tuple(of.grid),
                    tuple(of.block),
                    of.shared,
                    of.device,
                    of.stream,
                )
            )
        return found[::-1]

    def check_memory(self) -> int:
        """Return how many blocks were written around, or into after they were freed."""
        return self._driver.fake_check_memory()
