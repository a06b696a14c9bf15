from libc.stdint cimport int64_t

from cpython.object cimport PyObject
from pullback._c.base.types cimport pb_storage

cdef pb_storage *storage_new(int device_type, int device_index, int64_t nbytes) except NULL
cdef pb_storage *storage_foreign(void *data, int64_t nbytes, int device_type, int device_index,
                                 object owner, bint readonly) except NULL
cdef pb_storage *storage_alias(pb_storage *memory) except NULL
cdef void storage_free(pb_storage *storage) noexcept


cdef inline pb_storage *storage_retain(pb_storage *storage) noexcept:
    storage.refcount += 1
    return storage


cdef inline void storage_release(pb_storage *storage) noexcept:
    storage.refcount -= 1
    if storage.refcount == 0:
        storage_free(storage)
