"""The devices: contexts, streams, events and modules, made by pycuda on first use.

Everything here lives as long as the process: pycuda can destroy streams, events and modules on the
thread alone that made their context, and tensors may be freed on any thread.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator
from typing import Any

from pullback.backend import OutOfMemoryError
from pullback_cuda.runtime import contexts
from pullback_cuda.runtime.cubin_loader import load_image
from pullback_cuda.runtime.driver import start_driver

FAILURE_BYTES = 64
FUNCTIONS = (
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuEventCreate",
    "cuEventRecord",
    "cuStreamWaitEvent",
)
NO_TIMING = 2  # CUDA's flag for events
NON_BLOCKING = 1  # CUDA's flag for streams, which pycuda does not name
OLDEST = (7, 5)  # of the compute capabilities that kernels are compiled for

_starting = threading.RLock()
_started: dict[int, Device] = {}
_driver: Any = None  # pycuda.driver, after connect()
_contexts: list[Any] = []  # to the end of the process, even where the rest of a start failed
_addresses: dict[str, int] = {}  # of functions of the driver that pycuda does not offer


class Device:
    """One GPU: its primary context, its streams, its loaded kernels and spare events."""

    def __init__(self, number: int):
        self.number = number
        self.device = _driver.Device(number)
        capability = self.device.compute_capability()
        if capability < OLDEST:
            raise RuntimeError(
                f"cuda:{number} ({self.device.name()}) has compute capability "
                f"{capability[0]}.{capability[1]}; pullback-cuda needs 7.5 or newer"
            )
        self.process = os.getpid()
        self.context = self.device.retain_primary_context()
        _contexts.append(self.context)
        self.modules: dict[str, Any] = {}
        self.plain_events: list = []
        self.timing_events: list = []
        self.bare_events: list[int] = []  # CUDA's handles, which pycuda's events do not offer
        with self.pushed():
            stream = _driver.Stream(NON_BLOCKING)
            # Memory that the device reaches at the address where the host has it.
            flags = _driver.host_alloc_flags.PORTABLE | _driver.host_alloc_flags.DEVICEMAP
            self.failure = _driver.pagelocked_zeros(FAILURE_BYTES, "u1", mem_flags=flags)
            failure = self.failure.base.get_device_pointer()
        atexit.register(self.close)
        contexts.install_device(
            number,
            self,
            self.device.multiprocessor_count,
            self.context.handle,
            failure,
            stream,
        )

    def pushed(self) -> contexts.Pushed:
        """Return a block that has the context on pycuda's stack too.

        Raises: RuntimeError that names the device, for errors of the driver, and after the end.
        """
        return contexts.Pushed(self.number, self.context)

    def close(self) -> None:
        """Stop using the driver, before the interpreter takes everything apart.

        The context stays: pinned memory and tensors may be used until the very end. Nothing of
        pycuda's is on a thread's stack or is destroyed, so the driver ends with the process.
        """
        if os.getpid() == self.process:
            contexts.close()

    def add_stream(self) -> int:
        """Make one more stream, which waits for no other; return its number on this device."""
        with self.pushed():
            stream = _driver.Stream(NON_BLOCKING)
        return contexts.install_stream(self.number, stream)

    def function(self, family: str, name: str):
        """Return pycuda's Function of a kernel; its family is loaded if it was not."""
        with _starting, self.pushed():
            module = self.modules.get(family)
            if module is None:
                image = load_image(family, self)
                try:
                    module = _driver.module_from_buffer(image)
                except _driver.Error as error:
                    raise RuntimeError(
                        f"cuda:{self.number}: the image of {family!r} cannot be loaded: {error}"
                    ) from error
                self.modules[family] = module
            try:
                return module.get_function(name)
            except _driver.Error as error:
                raise RuntimeError(
                    f"the image of {family!r} has no kernel {name!r} ({error}): it is not of this "
                    f"version of pullback-cuda"
                ) from error

    # -- memory ------------------------------------------------------------------------------------

    def allocate(self, nbytes: int):
        """Return memory of the device, or None if there is not so much."""
        with self.pushed():
            try:
                return _driver.mem_alloc(nbytes)
            except _driver.MemoryError:
                return None

    def free(self, allocations: list) -> None:
        """Give memory back to the driver, which waits for all work on it first."""
        with self.pushed():
            while allocations:
                allocations.pop().free()

    def memory_info(self) -> tuple[int, int]:
        """Return how many bytes are free on the device, and how many there are."""
        with self.pushed():
            return _driver.mem_get_info()

    # -- events ------------------------------------------------------------------------------------

    def take_event(self, timing: bool = False):
        """Return an unused event."""
        spare = self.timing_events if timing else self.plain_events
        if spare:
            return spare.pop()
        flags = 0 if timing else _driver.event_flags.DISABLE_TIMING
        with self.pushed():
            return _driver.Event(flags)

    def give_event(self, event, timing: bool = True) -> None:
        """Keep an event for the next use."""
        (self.timing_events if timing else self.plain_events).append(event)

    def wait(self, waiter: int, other: Device, awaited: int) -> None:
        """Let later work of a stream begin after the work of another stream so far."""
        event = other.take_event()
        try:
            with contexts.Current(other.number):
                event.record(contexts.stream_at(other.number, awaited))
            with contexts.Current(self.number):
                contexts.stream_at(self.number, waiter).wait_for_event(event)
        finally:
            other.give_event(event, timing=False)  # the wait is for this recording of it

    def wait_for_foreign(self, waiter: int, other: Device, awaited: int) -> None:
        """As ``wait``, for CUDA's handles, of which one or both are another library's streams."""
        with contexts.Current(other.number):
            event = other.bare_events.pop() if other.bare_events else _make_event()
        try:
            with contexts.Current(other.number):
                _call("cuEventRecord", event, awaited)
            with contexts.Current(self.number):
                _call("cuStreamWaitEvent", waiter, event, 0)
        finally:
            other.bare_events.append(event)

    def copy_from(self, origin: Device, to: int, source: int, nbytes: int) -> None:
        """Copy from another device: after the earlier work of both streams, before their later."""
        here, there = contexts.current(self.number), contexts.current(origin.number)
        self.wait(here, origin, there)
        with contexts.Current(self.number):
            # Addresses say whose memory they are of; pycuda's memcpy_peer forgets the contexts.
            _driver.memcpy_dtod_async(to, source, nbytes, contexts.stream_at(self.number, here))
        origin.wait(there, self, here)

    def record_on(self, numbers: list[int]) -> list:
        """Record an event on each of these streams; return the events."""
        events: list[Any] = []
        try:
            with contexts.Current(self.number):
                for number in numbers:
                    events.append(self.take_event())
                    events[-1].record(contexts.stream_at(self.number, number))
        except BaseException:
            for event in events:
                self.give_event(event, timing=False)
            raise
        return events

    def passed(self, events: list, wait: bool) -> bool:
        """Return whether all events have passed, perhaps after waiting; then keep them."""
        with contexts.Current(self.number):
            for event in events:
                if wait:
                    event.synchronize()
                elif not event.query():
                    return False
        while events:  # none is given back twice, even with an interrupt in between
            self.give_event(events.pop(), timing=False)
        return True

    def mark(self, number: int):
        """Record an event that knows the time on a stream."""
        event = self.take_event(timing=True)
        with contexts.Current(self.number):
            event.record(contexts.stream_at(self.number, number))
        return event

    def elapsed(self, first, last) -> float:
        """Return the microseconds between two events that ``mark`` returned."""
        with contexts.Current(self.number):
            last.synchronize()
            return first.time_till(last) * 1000

    def wait_for_all(self) -> None:
        """Wait for all work on every device in use."""
        for device in list(_started.values()):
            device.synchronize()

    def synchronize(self) -> None:
        """Wait for all work on the device."""
        with contexts.Current(self.number):
            self.context.synchronize()


def _call(name: str, *arguments) -> None:
    """Call a function of the driver that pycuda does not offer, with handles and flags."""
    kinds = [ctypes.c_void_p] * len(arguments)
    code = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(_addresses[name])(*arguments)
    if code:
        raise RuntimeError(f"{name} failed with error {code}: is this a stream of the device?")


def _make_event() -> int:
    event = ctypes.c_void_p()
    _call("cuEventCreate", ctypes.addressof(event), NO_TIMING)
    return event.value or 0


def start(number: int) -> None:
    """Make everything that a device needs, unless another thread did."""
    contexts.require_open()
    with _starting, driver_errors(number):
        if number not in _started:
            count = _driver.Device.count()
            if number >= count:
                raise RuntimeError(f"device cuda:{number} does not exist: there are {count}")
            _started[number] = Device(number)


def device_error(number: int, error: Exception) -> RuntimeError:
    """Return a RuntimeError or OutOfMemoryError with the text of a driver error."""
    kind = OutOfMemoryError if isinstance(error, _driver.MemoryError) else RuntimeError
    return kind(f"cuda:{number}: {error}")


@contextlib.contextmanager
def driver_errors(number: int) -> Iterator[None]:
    """Raise errors of the driver as ours, which name the device."""
    try:
        yield
    except _driver.Error as error:
        raise device_error(number, error) from error


@contextlib.contextmanager
def pycuda_device(device) -> Iterator[Any]:
    """Yield pycuda's Device of a device argument, for queries of the driver."""
    number = device_number(device)
    found = started(number).device
    with driver_errors(number):
        yield found


def started(number: int) -> Device:
    """Return a device, started.

    Raises: RuntimeError if there is none of this number, or if the driver fails.
    """
    if number not in _started:
        if _driver is None:
            from pullback.backend import device_count

            device_count("cuda")  # loads the plugin, or says why it cannot be used
        start(number)
    return _started[number]


def device_number(device=None) -> int:
    """Return the number that a device argument means; None: the current device.

    Raises: ValueError for devices of another type, RuntimeError for numbers without a device.
    """
    import pullback as pb

    if device is None:
        return pb.cuda.current_device()
    where = pb.device(device)
    if where.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {where}")
    return pb.cuda.current_device() if where.index is None else where.index


def numbers() -> list[int]:
    """Return the numbers of the devices that were started."""
    return sorted(_started)


def attribute(name: str):
    """Return pycuda's name for something to know of a device."""
    return getattr(_driver.device_attribute, name)


def pinned_array(nbytes: int):
    """Return an array of bytes in host memory that every device reaches; None if there is none."""
    device = next(iter(_started.values()), None) or started(0)
    with device.pushed():
        try:
            flags = _driver.host_alloc_flags.PORTABLE
            return _driver.pagelocked_empty(nbytes, "u1", mem_flags=flags)
        except _driver.MemoryError:
            return None


def unpin(arrays: list) -> None:
    """Give pinned memory back to the system."""
    with next(iter(_started.values())).pushed():
        while arrays:
            arrays.pop().base.free()


def connect() -> Any:
    """Find the driver and give ``contexts`` what it needs; return pycuda's module.

    Raises: ImportError or RuntimeError, with one sentence that says what is missing.
    """
    global _driver
    if _driver is not None:
        return _driver
    _driver = start_driver()
    library = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")

    for name in FUNCTIONS:
        _addresses[name] = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    get_current, set_current = _addresses["cuCtxGetCurrent"], _addresses["cuCtxSetCurrent"]
    contexts.bind(start, get_current, set_current, _driver.Error, device_error)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=contexts.close)
    return _driver
