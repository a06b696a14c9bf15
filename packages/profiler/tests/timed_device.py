"""A backend whose device can be timed: the device ``timed``, two of them.

Its kernels compute nothing. The device begins each one a microsecond after it was launched, or when
the one before it has ended, and takes five. After a wait it passes the following mark late.
"""

from __future__ import annotations

import sys
import time

import pytest

from pullback.backend import hookimpl

EVERY_DTYPE = 0xFFF
LATENCY, DURATION, WAKING = 1.0, 5.0, 200.0  # microseconds
KERNELS = ("add", "copy", "exp", "mul", "sum")


def now() -> float:
    """Return the microseconds that the clock of the device shows: not those of the host."""
    return time.perf_counter() * 1e6 - 1e9


class Device:
    """Memory that keeps nothing, and when the work of each device ends."""

    def __init__(self) -> None:
        self.idle_from = [0.0, 0.0]
        self.asleep = [False, False]
        self.handles = 0

    def device_count(self) -> int:
        return 2

    def allocate(self, device: int, nbytes: int) -> int:
        self.handles += 1
        return self.handles

    def release(self, device: int, handle: int, nbytes: int) -> None:
        pass

    def write(self, device: int, handle: int, offset: int, source: memoryview) -> None:
        pass

    def read(self, device: int, handle: int, offset: int, target: memoryview) -> None:
        target.cast("B")[:] = bytes(target.nbytes)

    def copy(
        self, device: int, to: int, to_offset: int, source: int, source_offset: int, nbytes: int
    ) -> None:
        pass

    def synchronize(self, device: int) -> None:
        while now() < self.idle_from[device]:
            pass
        self.asleep[device] = True

    def mark(self, device: int) -> float:
        """Return when the device passes this point."""
        late = WAKING if self.asleep[device] else 0.0
        self.asleep[device] = False
        return max(self.idle_from[device], now() + LATENCY + late)

    def elapsed(self, device: int, first: float, last: float) -> float:
        return last - first


DEVICE = Device()


def run(out: object, *inputs: object, **params: object) -> None:
    """Take the time of a kernel."""
    index = (out[0] if isinstance(out, tuple) else out).device
    DEVICE.idle_from[index] = DEVICE.mark(index) + DURATION


@hookimpl
def pullback_backend(device: str) -> Device | None:
    return DEVICE if device == "timed" else None


@hookimpl
def pullback_register_kernels(table: object, device: str) -> None:
    if device == "timed":
        for primitive in KERNELS:
            table.add(primitive, EVERY_DTYPE, run)


@pytest.fixture
def timed_device(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of the device, which is installed as long as the test runs."""
    folder = tmp_path_factory.mktemp("timed")
    info = folder / "timed-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: timed\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pullback.backends]\ntimed = timed_device\n")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    return "timed"
