# build: small
"""Pinned memory: host memory that a device reads and writes by DMA, allocated by its backend."""

from pullback.abi cimport PB_E_PYTHON, pb_backend
from pullback._c.base.errors cimport keep_error
from pullback._c.base.types cimport STORAGE_PINNED, pb_storage
from pullback._c.device.device cimport has_field, pb_device_type
from pullback._c.base.errors import OutOfMemoryError


cdef class PinnedBlock:
    """Owner of a block of pinned memory, released when the last storage over it is freed."""

    def __dealloc__(self):
        if self.data != NULL:
            self.kind.backend.release_pinned(self.kind.backend.self, self.data, self.nbytes)


cdef PinnedBlock allocate_pinned(pb_device_type *kind, size_t nbytes):
    cdef PinnedBlock block = PinnedBlock.__new__(PinnedBlock)
    block.kind = kind
    block.nbytes = nbytes
    if nbytes:
        block.data = kind.backend.allocate_pinned(kind.backend.self, nbytes)
        if block.data == NULL:
            keep_error(PB_E_PYTHON)     # the backend may have set a more precise exception
            raise OutOfMemoryError(f"{kind.name.decode()}: cannot allocate {nbytes} bytes of "
                                   f"pinned memory")
    return block


cdef bint can_pin(pb_device_type *kind) noexcept:
    cdef pb_backend *backend = kind.backend
    return (kind.loaded and not kind.host and backend != NULL
            and has_field(backend, &backend.release_pinned) and backend.allocate_pinned != NULL)


cdef bint is_pinned_for(pb_storage *storage, pb_device_type *kind) noexcept:
    """True if memory is pinned for a device type."""
    while storage.memory != NULL:
        storage = storage.memory
    return (storage.flags & STORAGE_PINNED != 0
            and (<PinnedBlock><object>storage.owner).kind == kind)
