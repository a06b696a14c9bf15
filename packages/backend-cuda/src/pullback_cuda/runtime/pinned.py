"""Pinned host memory, with a cache of unused blocks."""

from __future__ import annotations

import bisect
import threading

from pullback_cuda.runtime import contexts, devices

SMALLEST = 4096


class Block:
    """A block of pinned memory, and the events of copies that use it."""

    def __init__(self, array):
        self.array = array
        self.address = array.ctypes.data
        self.nbytes = array.nbytes
        self.events: list = []  # (device, event)

    def is_idle(self) -> bool:
        """Return whether no copy uses the memory any more."""
        while self.events:
            device, event = self.events[-1]
            if not device.passed([event], wait=False):
                return False
            self.events.pop()
        return True


_lock = threading.RLock()
_addresses: list[int] = []  # of all blocks, sorted
_blocks: dict[int, Block] = {}
_unused: dict[int, list[Block]] = {}


def _rounded(nbytes: int) -> int:
    return max(SMALLEST, 1 << (nbytes - 1).bit_length())


def take(nbytes: int) -> int:
    """Return the address of unused pinned memory.

    Raises: MemoryError.
    """
    contexts.require_open()
    size = _rounded(nbytes)
    with _lock:
        for block in _unused.get(size, ()):
            if block.is_idle():
                _unused[size].remove(block)
                return block.address
        array = devices.pinned_array(size)
        if array is None:
            _shrink()
            array = devices.pinned_array(size)
        if array is None:
            raise MemoryError(f"pin_memory(): cannot pin {size} bytes of host memory")
        block = Block(array)
        bisect.insort(_addresses, block.address)
        _blocks[block.address] = block
        return block.address


def _shrink() -> None:
    """Give unused memory back to the system."""
    arrays = []
    for size, blocks in list(_unused.items()):  # the garbage collector may add to it
        for block in [block for block in blocks if block.is_idle()]:
            _unused[size].remove(block)
            _addresses.remove(block.address)
            del _blocks[block.address]
            arrays.append(block.array)
    devices.unpin(arrays)


def give(address: int) -> None:
    """Keep memory for reuse, which waits for the copies that still use it."""
    with _lock:
        block = _blocks[address]
        waiting = _unused.setdefault(block.nbytes, [])
        if block not in waiting:
            waiting.append(block)


def in_use(address: int, device, stream: int) -> None:
    """Note that a copy from or to pinned memory was given to a stream."""
    with _lock:
        index = bisect.bisect_right(_addresses, address) - 1
        block = _blocks[_addresses[index]] if index >= 0 else None
        if block is not None and address < block.address + block.nbytes:
            (event,) = device.record_on([stream])
            block.events.append((device, event))
