"""Batches sent from a worker process in shared memory.

A worker writes tensors and large arrays into blocks of anonymous shared memory, which the parent
maps too: it receives a file descriptor with the first batch in a block. The parent's tensors are in
that memory. When the last of them is freed, the worker gets the block back for another batch, so
that a loader in steady state neither maps memory nor sends descriptors. A block has no name: the
system frees it with the last process that maps it, however that process ends.
"""

from __future__ import annotations

import ctypes
import io
import math
import mmap
import os
import pickle
import tempfile
import threading
import weakref
from collections import deque
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pullback
from pullback._c.graph.tensor import Tensor
from pullback._c.interop.arrays import host_device, is_dense, share_address

ALIGNMENT = 64
SMALLEST_ARRAY = 4096  # bytes; smaller arrays are part of the pickle
LARGE_ROW = 4096  # bytes
PAGE = 4096

writer: Writer | None = None  # of this process, if it is a worker


# ---- mapped memory -------------------------------------------------------------------------------


def is_available() -> bool:
    """Return whether this system has what blocks need: mmap, and descriptors sent by sockets."""
    return os.name == "posix"


def _library():
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int),
        ctypes.c_long,
    )
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return library


_libc = _library() if is_available() else None


class Block:
    """A mapping of shared memory; it owns the descriptor, which the parent is sent once."""

    __slots__ = ("address", "descriptor", "lease", "number", "size")

    def __init__(self, number: int, size: int, descriptor: int):
        self.number = number
        self.size = size
        self.descriptor = descriptor
        self.lease: weakref.ref | None = None
        self.address: Any = None
        where = _libc.mmap(  # type: ignore[union-attr]
            None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0
        )
        if where in (None, ctypes.c_void_p(-1).value):
            error = ctypes.get_errno()
            raise OSError(error, f"cannot map {size} bytes of shared memory: {os.strerror(error)}")
        self.address = where

    def close_descriptor(self) -> None:
        """Close the descriptor; the mapping stays."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __del__(self, unmap=_libc and _libc.munmap):
        self.close_descriptor()
        if self.address is not None:
            unmap(self.address, self.size)


class Lease:
    """The owner of the tensors in a block, for one batch."""

    __slots__ = ("__weakref__", "block", "ended")

    def __init__(self, block: Block, ended=None):
        self.block = block
        self.ended = ended
        block.lease = weakref.ref(self)

    def __del__(self):
        if self.ended is not None:
            self.ended(self.block)


def _is_leased(block: Block) -> bool:
    return block.lease is not None and block.lease() is not None


def _new_memory(size: int) -> int:
    """Return a descriptor of new shared memory without a name."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pullback-data", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_large(row: Tensor) -> bool:
    """Return whether a batch of such rows is better copied row by row than with ``out=``.

    An operation with ``out=`` writes its result first, and copies it.
    """
    return row.numel() * row.dtype.itemsize >= LARGE_ROW


def fill(out: Tensor, rows) -> Tensor:
    """Copy rows of its shape into a tensor and return it."""
    with pullback.no_grad():
        for place, row in zip(out.unbind(0), rows):
            place.copy_(row)
    return out


# ---- the worker's side ---------------------------------------------------------------------------


class Writer:
    """The blocks of a worker: those that it has, and those that the parent has tensors in."""

    def __init__(self):
        self.device = host_device()
        self.home: list[Block] = []  # free, or only this process has still tensors in them
        self.away: dict[int, Block] = {}  # the parent has tensors in them
        self.open: list[Block] = []  # of the batch that is being made
        self.leases: list[Lease] = []  # of the open blocks
        self.used = 0  # bytes of the last open block
        self.batch = 0  # bytes of the batch that is being made
        self.largest = PAGE  # bytes of the largest batch so far
        self.count = 0
        self.dropped: list[int] = []  # numbers of blocks that the parent need not keep mapped

    def _block(self, size: int) -> Block:
        """Return a free block of at least so many bytes; if there is none, give up all others."""
        for place, block in enumerate(self.home):
            if block.size >= size and not _is_leased(block):
                return self.home.pop(place)
        self.dropped += [block.number for block in self.home]
        self.home.clear()
        self.count += 1
        size = -(-size // PAGE) * PAGE
        return Block(self.count, size, _new_memory(size))

    def take(self, nbytes: int) -> tuple[int, int]:
        """Reserve memory for this batch; return the open block's index and the offset."""
        start = -(-self.used // ALIGNMENT) * ALIGNMENT
        if not self.open or start + nbytes > self.open[-1].size:
            block = self._block(max(nbytes, self.largest, self.batch))
            self.open.append(block)
            self.leases.append(Lease(block))
            start = 0
        self.used = start + nbytes
        self.batch += nbytes + ALIGNMENT
        return len(self.open) - 1, start

    def at(self, index: int, start: int, shape, dtype, strides=None) -> Tensor:
        """Return the tensor at a place in an open block; strides are dense, None is row-major."""
        address = self.open[index].address + start
        lease = self.leases[index]
        return share_address(address, tuple(shape), strides, dtype, self.device, lease, False)

    def empty(self, shape, dtype) -> Tensor:
        """Return a new tensor in shared memory."""
        return self.at(*self.take(math.prod(shape) * dtype.itemsize), shape, dtype)

    def place(self, tensor: Tensor) -> tuple[int, int] | None:
        """Return the open block's index and the offset of a tensor's first element, or None."""
        address = tensor.data_ptr()
        for index, block in enumerate(self.open):
            if 0 <= address - block.address < block.size:
                return index, address - block.address
        return None

    def close_batch(self, sent: set[int]) -> list[int]:
        """End a batch; ``sent`` are the indices of the open blocks whose tensors are on their way.

        Returns the numbers of blocks that the parent need not keep mapped.
        """
        self.largest = max(self.largest, self.batch)
        self.leases.clear()
        for index, block in enumerate(self.open):
            if index in sent:
                self.away[block.number] = block
            else:
                self.home.append(block)
        self.open = []
        self.used = self.batch = 0
        dropped, self.dropped = self.dropped, []
        return dropped

    def take_back(self, returned, lost) -> None:
        """Receive the numbers of blocks that are free again, and of those that never will be."""
        self.home += [self.away.pop(number) for number in returned]
        for number in lost:
            self.away.pop(number, None)


class Parcel:
    """What one batch has in a writer's blocks."""

    def __init__(self, writer: Writer):
        self.writer = writer
        self.sent: set[int] = set()  # indices of open blocks
        self.arrays: list[tuple[int, int, int, bool]] = []  # index, offset, bytes, is read-only

    def add_tensor(self, tensor: Tensor) -> tuple:
        """Return the arguments of ``_unpack_tensor``; copies the elements if they are elsewhere."""
        shape, dtype = tuple(tensor.shape), tensor.dtype
        found = self.writer.place(tensor) if tensor.numel() else None
        if found is not None:
            strides = tensor.stride()
        else:
            strides = tensor.stride() if is_dense(tensor) else None
            found = self.writer.take(tensor.numel() * dtype.itemsize)
            self.writer.at(*found, shape, dtype, strides).copy_(tensor.detach())
        self.sent.add(found[0])
        return (*found, shape, strides, dtype, tensor.requires_grad)

    def add_array(self, buffer) -> bool:
        """Copy a large array's memory; True, to leave it in the pickle, for a small one."""
        raw = buffer.raw()
        if raw.nbytes < SMALLEST_ARRAY:
            return True
        index, start = self.writer.take(raw.nbytes)
        memoryview(self.writer.at(index, start, (raw.nbytes,), pullback.uint8))[:] = raw
        self.sent.add(index)
        self.arrays.append((index, start, raw.nbytes, raw.readonly))
        return False


class Packer(ForkingPickler):
    """A pickler that puts tensors and large arrays into shared memory."""

    def __init__(self, file, parcel: Parcel | None):
        super().__init__(file, 5)
        if parcel is not None:  # ForkingPickler's constructor takes no callback
            table = self.dispatch_table
            # A bound method of this object would be a cycle, which keeps the batch alive.
            pickle.Pickler.__init__(self, file, 5, buffer_callback=parcel.add_array)
            self.dispatch_table = table
        self.parcel = parcel

    def reducer_override(self, obj):
        """Send a plain tensor in host memory as its place in a block, another one by its bytes."""
        if not isinstance(obj, Tensor):
            return NotImplemented
        if obj.requires_grad and not obj.is_leaf:
            raise RuntimeError(
                "Cowardly refusing to serialize non-leaf tensor which requires_grad, since "
                "autograd does not support crossing process boundaries.  If you just want to "
                "transfer the data, call detach() on the tensor before serializing (e.g., putting "
                "it on the queue)."
            )
        parcel = self.parcel
        if (
            parcel is None
            or type(obj) is not Tensor
            or obj.device != parcel.writer.device
            or obj.__dict__
            or obj.is_conj()
            or obj.is_neg()
        ):
            return obj.__reduce_ex__(5)
        return _unpack_tensor, parcel.add_tensor(obj)


def pack(head: tuple, data, into: Writer | None) -> tuple[bytes, list[Block]]:
    """Return a message with a batch, and the blocks whose descriptors are to be sent after it."""
    file = io.BytesIO()
    parcel = None if into is None else Parcel(into)
    try:
        with pullback.no_grad():
            Packer(file, parcel).dump(data)
    except BaseException:
        if into is not None:
            into.close_batch(set())
        raise
    blocks: list = []
    arrays: list = []
    dropped: list[int] = []
    new: list[Block] = []
    if parcel is not None and into is not None:
        for index, block in enumerate(into.open):
            is_new = index in parcel.sent and block.descriptor >= 0
            found = (block.number, block.size, is_new)
            blocks.append(found if index in parcel.sent else None)
            if is_new:
                new.append(block)
        arrays = parcel.arrays
        dropped = into.close_batch(parcel.sent)
    front = pickle.dumps((*head, blocks, arrays, dropped), 5)
    return b"".join((len(front).to_bytes(4, "little"), front, file.getbuffer())), new


# ---- the parent's side ---------------------------------------------------------------------------

_incoming = threading.local()  # .leases: of the message that is being read
_readers: weakref.WeakSet[Reader] = weakref.WeakSet()


class Reader:
    """The blocks of one worker that the parent maps."""

    def __init__(self):
        self.blocks: dict[int, Block] = {}
        # To be sent to the worker; any thread may free a batch.
        self.returned: deque[int] = deque()
        self.lost: deque[int] = deque()
        self.forked: set[int] = set()  # blocks that a child of a fork may have tensors in
        _readers.add(self)

    def _end_of(self, block: Block) -> None:
        number = block.number
        if number in self.forked:
            self.forked.discard(number)
            self.blocks.pop(number, None)
            self.lost.append(number)
        else:
            self.returned.append(number)

    def take_returned(self) -> tuple[list[int], list[int]]:
        """Return the numbers of blocks to give back, and of those that cannot be, each once."""
        return _drained(self.returned), _drained(self.lost)

    def open(self, blocks, dropped, receive) -> list[Lease | None]:
        """Return a lease of each block of a message; ``receive(n)`` returns new descriptors."""
        for number in dropped:
            self.blocks.pop(number, None)
        new = [found for found in blocks if found is not None and found[2]]
        for (number, size, _), descriptor in zip(new, receive(len(new)) if new else ()):
            self.blocks[number] = block = Block(number, size, descriptor)
            block.close_descriptor()
        ended = weakref.WeakMethod(self._end_of)
        return [
            None if found is None else Lease(self.blocks[found[0]], _Ended(ended))
            for found in blocks
        ]


def _drained(numbers: deque[int]) -> list[int]:
    return [numbers.popleft() for _ in range(len(numbers))]


class _Ended:
    """Calls a reader's method while there is a reader: tensors may outlive their loader."""

    __slots__ = ("method",)

    def __init__(self, method):
        self.method = method

    def __call__(self, block):
        method = self.method()
        if method is not None:
            method(block)


def unpack(message: bytes, reader: Reader, receive) -> tuple[tuple, object]:
    """Return the head of a message and its batch."""
    length = int.from_bytes(message[:4], "little")
    view = memoryview(message)
    *head, blocks, buffers, dropped = pickle.loads(view[4 : 4 + length])
    leases = reader.open(blocks, dropped, receive)
    _incoming.leases = leases
    try:
        arrays = []
        for index, start, nbytes, readonly in buffers:
            array = memoryview(_tensor(leases[index], start, (nbytes,), None, pullback.uint8))
            arrays.append(array.toreadonly() if readonly else array)
        return tuple(head), pickle.loads(view[4 + length :], buffers=arrays)
    finally:
        del _incoming.leases


def _tensor(lease, start, shape, strides, dtype) -> Tensor:
    address = lease.block.address + start
    return share_address(address, shape, strides, dtype, host_device(), lease, False)


def _unpack_tensor(index, start, shape, strides, dtype, requires_grad):
    made = _tensor(_incoming.leases[index], start, shape, strides, dtype)
    return made.requires_grad_() if requires_grad else made


def _note_fork() -> None:
    """A child has the same memory: blocks in use are not given back to be written again."""
    for reader in list(_readers):
        reader.forked.update(
            number for number, block in list(reader.blocks.items()) if _is_leased(block)
        )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_parent=_note_fork)
