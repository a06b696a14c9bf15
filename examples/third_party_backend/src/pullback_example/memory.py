"""Device memory: blocks by number. Nothing outside this package can reach the bytes."""

import ml_dtypes
import numpy as np


class Memory:
    """Blocks of bytes behind handles, which are numbers and no addresses."""

    def __init__(self):
        self.blocks = {}
        self.in_use = self.peak = self.count = 0

    def allocate(self, device, nbytes):
        """Return the handle of a fresh block."""
        self.count += 1
        self.blocks[self.count] = np.empty(nbytes, np.uint8)
        self.in_use += nbytes
        self.peak = max(self.peak, self.in_use)
        return self.count

    def release(self, device, handle, nbytes):
        """Forget a block."""
        del self.blocks[handle]
        self.in_use -= nbytes

    def write(self, device, handle, offset, source):
        """Copy host bytes into a block."""
        self.blocks[handle][offset : offset + len(source)] = np.frombuffer(source, np.uint8)

    def read(self, device, handle, offset, target):
        """Copy bytes of a block to the host."""
        np.frombuffer(target, np.uint8)[:] = self.blocks[handle][offset : offset + len(target)]

    def copy(self, device, to, to_offset, source, source_offset, nbytes):
        """Copy bytes between blocks."""
        self.write(device, to, to_offset, self.blocks[source][source_offset:][:nbytes].tobytes())

    def memory_stats(self, device):
        """Return bytes in use, their peak, bytes held, allocations made."""
        return self.in_use, self.peak, self.in_use, self.count

    def compile(self, device, calls):
        """Return a function that runs a part of a compiled program."""
        from pullback_example.executor import Executor

        return Executor(calls)


MEMORY = Memory()


def dtype_of(array):
    """Return NumPy's dtype of a kernel's operand."""
    return np.dtype(ml_dtypes.bfloat16 if array.dtype == "bfloat16" else array.dtype)


def view(array):
    """Return a kernel's operand as a NumPy array over its block; a number as a 0-d array."""
    dtype = dtype_of(array)
    if array.host:
        return np.asarray(array.value, dtype)
    if 0 in array.shape:
        return np.empty(array.shape, dtype)
    size = dtype.itemsize
    strides = [size * step for step in array.strides]
    return np.ndarray(array.shape, dtype, MEMORY.blocks[array.base], size * array.offset, strides)
