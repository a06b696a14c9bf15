"""A device that does nothing before a wait: work stays in the queues of streams.

A value that is read on another stream than the one that makes it, without a wait, is not there yet:
fresh memory holds NaN. Free memory is reused immediately by the stream it was allocated for, so
that what another stream still had to read from it is gone. What kernels run into is raised later.
"""

import ctypes
import os
import sys
import threading
from types import SimpleNamespace

import ml_dtypes
import numpy as np

import pullback as pb
from pullback.backend import hookimpl
from pullback.refbackend import plugin as reference
from pullback.testing.kernel_calls import Call

DEVICES = 2
EXTRA = 5  # streams of a device beside its default one


def address(device, number):
    """Return the address of a stream; 0 is the default one, which has an address, too."""
    return 0x10000 * (device + 1) + 0x40 * number


class Stream:
    """A queue of work, done in order up to where somebody waits for."""

    def __init__(self, device, number):
        self.device = device
        self.handle = address(device, number)
        self.work = []
        self.done = 0

    def give(self, name, job):
        """Add work; ``job`` is called when it is done."""
        self.work.append((name, job))

    def finish(self, until=None):
        """Do the work up to a point, now or everything that was given so far."""
        until = len(self.work) if until is None else until
        while self.done < until:
            self.done += 1
            self.work[self.done - 1][1]()

    def names(self):
        """Return what was given since the last call of ``forget``, by name."""
        return [name for name, _ in self.work[self.mark :]]

    mark = 0


class Block:
    """Memory of a device, allocated for a stream and perhaps used on others."""

    def __init__(self, owner, nbytes):
        self.owner = owner
        self.bytes = np.full(nbytes, 0xFF, np.uint8)
        self.users = set()
        self.busy = []


class AsyncMemory:
    """The memory interface; everything but the host's side of copies is put into queues."""

    non_blocking = True

    def __init__(self):
        numbers = [(d, k) for d in range(DEVICES) for k in range(EXTRA + 1)]
        self.streams = {address(d, k): Stream(d, k) for d, k in numbers}
        self.blocks, self.free, self.pinned = {}, [], {}
        self.local = threading.local()
        self.failure = None
        self.last = 0

    # -- streams

    def current_stream(self, device):
        return getattr(self.local, "current", {}).get(device, address(device, 0))

    def set_stream(self, device, stream):
        before = self.current_stream(device)
        if not hasattr(self.local, "current"):
            self.local.current = {}
        self.local.current[device] = self.find(device, stream).handle
        return before

    def find(self, device, stream):
        """Return the stream of an address."""
        found = self.streams.get(stream or address(device, 0))
        if found is None or found.device != device:
            raise ValueError(f"device {device} has no stream {stream:#x}")
        return found

    def wait_stream(self, device, waiter, other_device, awaited):
        earlier = self.find(other_device, awaited)
        until = len(earlier.work)
        self.find(device, waiter).give(("wait", earlier.handle), lambda: earlier.finish(until))

    def use_memory(self, device, handle, stream):
        self.blocks[handle].users.add(self.find(device, stream))

    def now(self, device):
        """Return the current stream."""
        return self.streams[self.current_stream(device)]

    # -- memory

    def device_count(self):
        return DEVICES

    def allocate(self, device, nbytes):
        self.last += 1
        owner = self.now(device)
        for block in reversed(self.free):
            idle = all(stream.done >= until for stream, until in block.busy)
            if block.owner is owner and len(block.bytes) == nbytes and idle:
                self.free.remove(block)
                break
        else:
            block = Block(owner, nbytes)
        self.blocks[self.last] = block
        return self.last

    def release(self, device, handle, nbytes):
        block = self.blocks.pop(handle)
        block.busy = [(stream, len(stream.work)) for stream in block.users]
        block.users = set()
        self.free.append(block)

    def allocate_pinned(self, nbytes):
        block = np.full(nbytes, 0xFF, np.uint8)
        self.pinned[block.ctypes.data] = block
        return block.ctypes.data

    def release_pinned(self, where, nbytes):
        del self.pinned[where]

    # -- copies

    def write(self, device, handle, offset, source, non_blocking=False):
        target = self.blocks[handle].bytes[offset : offset + len(source)]
        if non_blocking:
            source = self.pinned_part(source)
        else:
            source = np.frombuffer(source, np.uint8).copy()
        self.now(device).give("write", lambda: np.copyto(target, source))

    def read(self, device, handle, offset, target, non_blocking=False):
        source = self.blocks[handle].bytes[offset : offset + len(target)]
        if non_blocking:
            there = self.pinned_part(target)
            self.now(device).give("read", lambda: np.copyto(there, source))
            return
        self.now(device).finish()
        self.check()
        np.frombuffer(target, np.uint8)[:] = source

    def pinned_part(self, view):
        """Return the pinned memory that a view shows."""
        first = np.frombuffer(view, np.uint8).ctypes.data
        for start, block in self.pinned.items():
            if start <= first < start + len(block):
                return block[first - start : first - start + len(view)]
        raise ValueError("this memory is not pinned")

    def copy(self, device, to, to_offset, source, source_offset, nbytes):
        self.copy_between(device, to, to_offset, device, source, source_offset, nbytes)

    def copy_between(self, device, to, to_offset, source_device, source, source_offset, nbytes):
        target = self.blocks[to].bytes[to_offset : to_offset + nbytes]
        origin = self.blocks[source].bytes[source_offset : source_offset + nbytes]
        here, there = self.now(device), self.now(source_device)
        self.wait_stream(source_device, there.handle, device, here.handle)
        there.give("copy_between", lambda: np.copyto(target, origin))
        self.wait_stream(device, here.handle, source_device, there.handle)

    def synchronize(self, device):
        for stream in self.streams.values():
            if stream.device == device:
                stream.finish()
        self.check()

    # -- failures

    def check(self):
        """Raise what a kernel ran into since the last time."""
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure


MEMORY = AsyncMemory()


def operand(array):
    """Return a kernel's operand as a NumPy array that is read when the kernel runs."""
    dtype = np.dtype(ml_dtypes.bfloat16 if array.dtype == "bfloat16" else array.dtype)
    if array.host:
        return np.asarray(array.value, dtype)
    if 0 in array.shape:
        return np.empty(array.shape, dtype)
    strides = [dtype.itemsize * step for step in array.strides]
    memory = MEMORY.blocks[array.base].bytes
    return np.ndarray(array.shape, dtype, memory, dtype.itemsize * array.offset, strides)


def queued(primitive, kernel):
    """Return a kernel that leaves one of the reference backend to the current stream."""

    def run(out, *inputs, **parameters):
        outs = out if isinstance(out, tuple) else (out,)
        views = [operand(each) for each in outs]
        ins = [operand(each) for each in inputs]

        def job():
            try:
                with np.errstate(all="ignore"):
                    kernel(tuple(views) if isinstance(out, tuple) else views[0], *ins, **parameters)
            except Exception as error:
                MEMORY.failure = error

        MEMORY.now(outs[0].device).give(primitive, job)

    return run


FLOAT32 = 8


def described(array):
    """Return a float32 operand of a compiled kernel as Python kernels get theirs."""
    host = bool(array.flags & 1)
    value = ctypes.cast(array.data, ctypes.POINTER(ctypes.c_float))[0] if host else None
    dims = range(array.ndim)
    return SimpleNamespace(
        dtype="float32",
        host=host,
        value=value,
        base=array.base,
        offset=array.offset,
        shape=tuple(array.shape[d] for d in dims),
        strides=tuple(array.strides[d] for d in dims),
        device=array.device,
    )


def addcmul(out, x, first, second, value):
    """Add a multiple of a product."""
    out[...] = x + value * first * second


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Call))
def compiled_addcmul(pointer):
    """Sums of products, which backward forms in place where a backend has a compiled kernel."""
    call = pointer.contents
    kernel = queued("addcmul in one", addcmul)
    if call.stream != MEMORY.now(call.device).handle:
        return 1
    kernel(
        described(call.out[0].contents),
        *[described(call.in_[i].contents) for i in range(call.nin)],
    )
    return 0


KERNEL_NAME = b"int (pb_call *)"


def capsule(function):
    """Return a C function as a capsule."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
    )
    return make(ctypes.cast(function, ctypes.c_void_p), KERNEL_NAME, None)


class Collect:
    """Stands for a table of kernels, to forward them to another one."""

    def __init__(self, table):
        self.table = table

    def add(self, primitive, mask, kernel):
        self.table.add(primitive, mask, queued(primitive, kernel))


@hookimpl
def pullback_backend(device):
    """Give memory for our device, nothing for others."""
    return MEMORY if device == "async" else None


@hookimpl
def pullback_register_kernels(table, device):
    """Register every kernel of the reference backend, to run later."""
    if device == "async":
        reference.pullback_register_kernels(Collect(table), "ref")
        table.add("addcmul", 1 << FLOAT32, capsule(compiled_addcmul))


# ---- for tests -----------------------------------------------------------------------------------


class on:
    """``with on(1, device=0):`` makes a stream the current one."""

    def __init__(self, number, device=0):
        self.device = f"async:{device}"
        self.handle = address(device, number)

    def __enter__(self):
        self.before = pb.backend.set_stream(self.device, self.handle)
        return self

    def __exit__(self, *args):
        pb.backend.set_stream(self.device, self.before)


def wait(waiter, awaited, device=0, other=0):
    """Let a stream wait for another one, both by number."""
    pb.backend.wait_stream(
        f"async:{device}", address(device, waiter), address(other, awaited), f"async:{other}"
    )


def current(device=0):
    """Return the address of the current stream."""
    return pb.backend.current_stream(f"async:{device}")


def leaf(*values, device=0):
    """Return a leaf whose numbers are there already."""
    made = pb.tensor(values).to(f"async:{device}").requires_grad_()
    forget()
    return made


def given(number, device=0):
    """Return the names of the work that a stream was given since ``forget``."""
    return MEMORY.streams[address(device, number)].names()


def forget():
    """Do all work, and begin to count anew."""
    for device in range(DEVICES):
        MEMORY.synchronize(device)
    for stream in MEMORY.streams.values():
        stream.mark = len(stream.work)


def install(folder):
    """Make the device known as an installed plugin would be, and load it."""
    info = folder / "async_device-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: async-device\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pullback.backends]\nasync = async_device\n")
    allowed = os.environ.pop("PULLBACK_PLUGINS", None)
    sys.path.insert(0, str(folder))
    try:
        pb.zeros(1, device="async")
    finally:
        sys.path.remove(str(folder))
        if allowed is not None:
            os.environ["PULLBACK_PLUGINS"] = allowed
