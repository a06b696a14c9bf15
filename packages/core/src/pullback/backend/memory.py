"""What a backend written in Python implements to manage its device's memory."""

from __future__ import annotations

from typing import Protocol


class Memory(Protocol):
    """The methods of the object that a plugin's ``pullback_backend`` returns.

    A handle is what ``allocate`` returned: any integer but 0 that fits a pointer. The core never
    looks behind it. Offsets and sizes count bytes. ``device`` is the number of the device.

    A plugin may add ``device_count()`` (1 without it), ``synchronize(device)``,
    ``memory_stats(device)`` (bytes in use, their peak, bytes held, allocations made),
    ``reset_peak_memory_stats(device)`` and ``empty_cache(device)``. With ``mark(device)``, which
    returns an object that stands for a point in the work of the current stream, and
    ``elapsed(device, first, last)``, the microseconds between two of them, profilers time the
    kernels of the device; without them they time the host only.

    A device with streams, queues of work that run side by side, adds ``current_stream(device)``,
    ``set_stream(device, stream)``, which makes a stream the current one of the calling thread and
    returns the one before it, and ``wait_stream(device, waiter, other_device, awaited)``: what
    ``waiter`` is given from now on begins after all that ``awaited`` was given so far. A stream is
    an integer that fits a pointer; 0 is the default one. ``use_memory(device, handle, stream)``
    tells that memory is used on a stream that it was not allocated for: once released, it must wait
    for the work that the stream has been given until then.

    ``copy_between(device, to, to_offset, source_device, source, source_offset, nbytes)`` copies
    between two devices, after and before the work of the current streams of both; without it such
    copies go through the host. ``allocate_pinned(nbytes)`` and ``release_pinned(address, nbytes)``
    are for host memory that the device reaches by itself. With an attribute ``non_blocking = True``
    ``write`` and ``read`` get ``non_blocking=True`` for copies from and to such memory that may
    return before they are done.

    What a method raises reaches the user as a RuntimeError with the text; an IndexError or a
    MemoryError of ``write``, ``read``, ``copy`` or ``synchronize`` keeps its class, for a device
    may tell of one when the work that met it was given long before.

    >>> class HostMemory:
    ...     def __init__(self):
    ...         self.blocks = {}
    ...     def allocate(self, device, nbytes):
    ...         handle = len(self.blocks) + 1
    ...         self.blocks[handle] = memoryview(bytearray(nbytes))
    ...         return handle
    ...     def release(self, device, handle, nbytes):
    ...         self.blocks[handle] = None
    ...     def write(self, device, handle, offset, source):
    ...         self.blocks[handle][offset:offset + source.nbytes] = source.cast("B")
    ...     def read(self, device, handle, offset, target):
    ...         target.cast("B")[:] = self.blocks[handle][offset:offset + target.nbytes]
    ...     def copy(self, device, to, to_offset, source, source_offset, nbytes):
    ...         part = bytes(self.blocks[source][source_offset:source_offset + nbytes])
    ...         self.blocks[to][to_offset:to_offset + nbytes] = part
    """

    def allocate(self, device: int, nbytes: int) -> int:
        """Return a handle of fresh memory.

        Raises: MemoryError when there is none; the caller of the op sees it.
        """

    def release(self, device: int, handle: int, nbytes: int) -> None:
        """Take memory back."""

    def write(self, device: int, handle: int, offset: int, source: memoryview) -> None:
        """Copy host bytes into the memory; ``source`` is not valid afterwards."""

    def read(self, device: int, handle: int, offset: int, target: memoryview) -> None:
        """Copy bytes of the memory into host memory; ``target`` is not valid afterwards."""

    def copy(
        self, device: int, to: int, to_offset: int, source: int, source_offset: int, nbytes: int
    ) -> None:
        """Copy bytes inside the device; the two ranges may be of one handle."""
