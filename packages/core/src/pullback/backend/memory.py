"""The interface of an allocator written in Python."""

from __future__ import annotations

from typing import Protocol


class Memory(Protocol):
    """The methods of the object that a plugin's ``pullback_backend`` returns.

    A handle is the result of ``allocate``: any integer but 0 that fits a pointer. The core never
    dereferences it. Offsets and sizes count bytes. ``device`` is the index of the device.

    A plugin may add ``device_count()`` (1 without it), ``synchronize(device)``,
    ``memory_stats(device)`` (bytes in use, their peak, bytes held, allocations made),
    ``reset_peak_memory_stats(device)`` and ``empty_cache(device)``. With ``mark(device)``, which
    returns an object for a point in the work of the current stream, and ``elapsed(device, first,
    last)``, the microseconds between two of them, profilers time the kernels of the device; without
    them only the host.

    A device with streams, concurrent queues of work, adds ``current_stream(device)``,
    ``set_stream(device, stream)``, which makes a stream the current one of the calling thread and
    returns the one before it, and ``wait_stream(device, waiter, other_device, awaited)``: work
    queued on ``waiter`` from now on begins after all work queued so far on ``awaited``. A stream is
    an integer that fits a pointer; 0 is the default one. ``use_memory(device, handle, stream)``
    notifies that memory is used on another stream than it was allocated for: after its release, it
    must not be used again before the work queued on that stream until then is done.

    ``copy_between(device, to, to_offset, source_device, source, source_offset, nbytes)`` copies
    between two devices, after and before the work of the current streams of both; without it such
    copies go through the host. ``allocate_pinned(nbytes)`` and ``release_pinned(address, nbytes)``
    are for pinned host memory. With an attribute ``non_blocking = True`` ``write`` and ``read``
    receive ``non_blocking=True`` for copies from and to such memory that may return before they are
    done.

    Kernels may return their results where the object has ``store(out, value)``, which writes an
    array of the device's library into an operand: ``out`` has ``base``, ``offset``, ``shape``,
    ``strides`` and ``dtype``.

    ``compile(device, calls)`` offers to run kernel calls of a compiled program that follow each
    other: a list of objects with ``primitive``, ``outs``, ``ins``, ``params`` (as a kernel in
    Python gets them) and ``inner``, for each output whether its memory is of no use outside of
    these calls. It returns None, or a function that is called with such a list in each run, in
    which ``base``, ``offset`` and numbers among the parameters may be others, and which leaves in
    memory what the calls would have left, one after the other.

    An exception of a method is raised as a RuntimeError with its text, a result of ``allocate``
    that is no handle as a TypeError; an IndexError or a MemoryError of ``write``, ``read``,
    ``copy`` or ``synchronize`` keeps its class: a device may report the failure of earlier work
    there.

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
        """Return a handle of new memory.

        Raises: MemoryError when there is none; the call of the op raises it.
        """

    def release(self, device: int, handle: int, nbytes: int) -> None:
        """Free memory."""

    def write(self, device: int, handle: int, offset: int, source: memoryview) -> None:
        """Copy host bytes into the memory; ``source`` is not valid afterwards."""

    def read(self, device: int, handle: int, offset: int, target: memoryview) -> None:
        """Copy bytes of the memory into host memory; ``target`` is not valid afterwards."""

    def copy(
        self, device: int, to: int, to_offset: int, source: int, source_offset: int, nbytes: int
    ) -> None:
        """Copy bytes inside the device; the two ranges may be of one handle."""
