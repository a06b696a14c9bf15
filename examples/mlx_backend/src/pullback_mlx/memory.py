"""Device memory: a block is a 1-d MLX array of any dtype behind a number.

MLX arrays cannot be written. A write replaces the array of a block by a new one, which MLX
computes when somebody reads it.
"""

import itertools
import math

import mlx.core as mx
import numpy as np

LARGEST = 2**31 - 1  # elements of an MLX array
PENDING = 64  # writes after which MLX begins to compute them
NAMES = "uint8 int8 int16 int32 int64 float16 bfloat16 float32 complex64 uint16 uint32 uint64"
DTYPES = {"bool": mx.bool_, **{name: getattr(mx, name) for name in NAMES.split()}}


class Memory:
    """Blocks of memory behind handles; see pullback.backend.Memory."""

    def __init__(self):
        self.blocks, self.handles = {}, itertools.count(1)
        self.pending = self.in_use = self.peak = 0

    def allocate(self, device, nbytes):
        """Return the handle of a fresh block."""
        if nbytes > LARGEST:
            raise MemoryError
        handle = next(self.handles)
        self.blocks[handle] = mx.zeros(nbytes, mx.uint8)
        self.in_use += nbytes
        self.peak = max(self.peak, self.in_use)
        return handle

    def release(self, device, handle, nbytes):
        """Forget a block."""
        del self.blocks[handle]
        self.in_use -= nbytes

    def write(self, device, handle, offset, source):
        """Copy host bytes into a block."""
        self.put_bytes(handle, offset, mx.array(np.frombuffer(source, np.uint8)))

    def read(self, device, handle, offset, target):
        """Copy bytes of a block to the host."""
        target[:] = np.asarray(self.flat(handle, mx.uint8)[offset : offset + len(target)]).data

    def copy(self, device, to, to_offset, source, source_offset, nbytes):
        """Copy bytes between blocks."""
        part = self.flat(source, mx.uint8)[source_offset : source_offset + nbytes]
        self.put_bytes(to, to_offset, part)

    def synchronize(self, device):
        """Wait until everything that was written is computed."""
        mx.eval(list(self.blocks.values()))

    def memory_stats(self, device):
        """Return bytes in use and their peak."""
        return self.in_use, self.peak

    def store(self, out, value):
        """Write an array that a kernel returned into its output."""
        value = value.astype(DTYPES[out.dtype]).reshape(-1)
        if not value.size:
            return
        if is_dense(out):
            self.put_bytes(out.base, out.offset * value.dtype.size, value)
        else:
            flat = self.flat(out.base, value.dtype)
            positions = mx.as_strided(mx.arange(flat.size), out.shape, out.strides, out.offset)
            flat[positions.reshape(-1)] = value
            self.put_bytes(out.base, 0, flat)

    def put_bytes(self, handle, offset, data):
        """Replace bytes of a block by those of an array, which it becomes if all are replaced."""
        if data.nbytes != self.blocks[handle].nbytes:
            start, data = mx.array([offset]), data.view(mx.uint8)
            data = mx.slice_update(self.flat(handle, mx.uint8), data, start, [0])
        self.blocks[handle] = data
        self.pending = (self.pending + 1) % PENDING
        if self.pending == 0:  # else the work to do would grow as long as nobody reads
            mx.async_eval(*self.blocks.values())

    def flat(self, handle, dtype):
        """Return a block as a new 1-d array of a dtype."""
        block = self.blocks[handle]
        count = block.nbytes // dtype.size
        if block.dtype != dtype:  # what does not fill an element at the end is left out
            block = block.view(mx.uint8)[: count * dtype.size].view(dtype)
        return block[:count]


MEMORY = Memory()


def is_dense(array):
    """Tell whether the elements of an operand follow each other in memory."""
    step = 1
    for size, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def view(array):
    """Return an operand of a kernel as an MLX array."""
    dtype, shape = DTYPES[array.dtype], array.shape
    if array.host:
        return mx.broadcast_to(mx.array(array.value, dtype), shape)
    if 0 in shape:
        return mx.zeros(shape, dtype)
    flat = MEMORY.flat(array.base, dtype)
    if is_dense(array):
        return flat[array.offset : array.offset + math.prod(shape)].reshape(shape)
    return mx.as_strided(mx.contiguous(flat), shape, array.strides, array.offset)
