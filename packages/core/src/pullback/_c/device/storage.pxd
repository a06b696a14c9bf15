from libc.stdint cimport int64_t

from cpython.object cimport PyObject
from pullback._c.base.state cimport captured_read
from pullback._c.base.types cimport pb_storage, pb_storage_extra

cdef pb_storage *storage_new(int device_type, int device_index, int64_t nbytes) except NULL
cdef pb_storage *storage_foreign(void *data, int64_t nbytes, int device_type, int device_index,
                                 object owner, bint readonly) except NULL
cdef pb_storage *storage_alias(pb_storage *memory) except NULL
cdef pb_storage_extra *storage_extra(pb_storage *storage) except NULL
cdef int storage_swap(pb_storage *storage, pb_storage *other) except -1
cdef int storage_shrink(pb_storage *storage, int64_t nbytes) except -1
cdef void storage_free(pb_storage *storage) noexcept


cdef inline pb_storage *storage_original(pb_storage *storage) noexcept:
    """Return the storage itself, or of an alias the original."""
    while storage.memory != NULL:
        storage = storage.memory
    return storage


cdef inline int storage_export(pb_storage *storage) except -1:
    """Retain a storage for a buffer that another library holds: its memory must stay."""
    captured_read(storage, b"memory is shared with another library")
    storage_extra(storage_original(storage)).exports += 1
    storage.refcount += 1
    return 0


cdef inline void storage_end_export(pb_storage *storage) noexcept:
    storage_original(storage).extra.exports -= 1
    storage_release(storage)


cdef inline pb_storage *storage_retain(pb_storage *storage) noexcept:
    storage.refcount += 1
    return storage


cdef inline void storage_release(pb_storage *storage) noexcept:
    storage.refcount -= 1
    if storage.refcount == 0:
        storage_free(storage)
