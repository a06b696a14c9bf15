"""Storages: blocks of memory with a version counter, shared by tensors, views and aliases."""

from cpython.exc cimport PyErr_Fetch, PyErr_Occurred, PyErr_Restore
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from pullback.pool cimport pb_pool, pb_pool_allocate, pb_pool_release
from pullback._c.device.device cimport DEVICE_META, device_type, device_types, pb_device_type
from pullback._c.base.state cimport (
    globals_, pb_globals, process_pool, refuse_capture, thread_state)
from pullback._c.base.types cimport (
    STORAGE_INFERENCE, STORAGE_PINNED, STORAGE_READONLY, STORAGE_SHARED, pb_storage,
    pb_storage_extra)

from pullback._c.base.errors import OutOfMemoryError

cdef uint32_t MEMORY_FLAGS = STORAGE_READONLY | STORAGE_PINNED | STORAGE_SHARED
cdef pb_globals *process = globals_()
cdef pb_pool *pool = process_pool()


cdef pb_storage *block_new() except NULL:
    cdef pb_storage *storage = <pb_storage *>pb_pool_allocate(pool, sizeof(pb_storage))
    if storage == NULL:
        raise MemoryError()
    storage.refcount = 1
    storage.version = 0
    storage.flags = 0
    if process.inference and thread_state().inference:
        storage.flags = STORAGE_INFERENCE
    storage.last_writer = -1
    storage.extra = NULL
    storage.owner = NULL
    storage.memory = NULL
    return storage


cdef void notify_memory(int type_id, int device_index, void *data, int64_t delta) noexcept:
    """Notify observers, with a pending exception set aside: it may be why memory is freed."""
    cdef PyObject *kind
    cdef PyObject *value
    cdef PyObject *trace
    PyErr_Fetch(&kind, &value, &trace)
    process.observer.memory(process.observer.self, type_id, device_index, data, delta)
    PyErr_Restore(kind, value, trace)


cdef void *memory_new(int device_type_id, int device_index, int64_t nbytes) except? NULL:
    cdef pb_device_type *found = device_type(device_type_id)
    cdef void *data
    if found.backend == NULL:
        data = malloc(nbytes)
    else:
        data = found.backend.allocate(found.backend.self, device_index, nbytes)
    if data == NULL:
        if process.observer != NULL:
            notify_memory(device_type_id, device_index, NULL, nbytes)
        if PyErr_Occurred() != NULL:    # the backend has set a more precise exception
            return NULL
        raise OutOfMemoryError(f"{found.name.decode()}: cannot allocate {nbytes} bytes")
    return data


cdef pb_storage *storage_new(int device_type_id, int device_index, int64_t nbytes) except NULL:
    """Return a storage with new memory of a device; owned. No memory on meta or for 0 bytes."""
    cdef void *data = NULL
    cdef pb_storage *storage
    if nbytes > 0 and device_type_id != DEVICE_META:
        data = memory_new(device_type_id, device_index, nbytes)
    else:
        device_type(device_type_id)
    storage = block_new()
    storage.data = data
    storage.nbytes = nbytes
    storage.device_type = device_type_id
    storage.device_index = device_index
    if process.observer != NULL and data != NULL:
        notify_memory(device_type_id, device_index, data, nbytes)
    if process.capture != NULL and data != NULL:
        process.capture.allocated(process.capture.self, storage)
    return storage


cdef pb_storage *storage_foreign(void *data, int64_t nbytes, int device_type_id,
                                 int device_index, object owner, bint readonly) except NULL:
    """Wrap memory that `owner` keeps alive; owned."""
    refuse_capture(b"memory of another library becomes a tensor")
    cdef pb_storage *storage = block_new()
    storage.data = data
    storage.nbytes = nbytes
    storage.device_type = device_type_id
    storage.device_index = device_index
    Py_INCREF(owner)
    storage.owner = <PyObject *>owner
    if readonly:
        storage.flags |= STORAGE_READONLY
    return storage


cdef pb_storage_extra *storage_extra(pb_storage *storage) except NULL:
    """Return the fields that few storages have, allocated on first use."""
    if storage.extra == NULL:
        storage.extra = <pb_storage_extra *>pb_pool_allocate(pool, sizeof(pb_storage_extra))
        if storage.extra == NULL:
            raise MemoryError()
        memset(storage.extra, 0, sizeof(pb_storage_extra))
    return storage.extra


cdef pb_storage *storage_alias(pb_storage *memory) except NULL:
    """Return the same memory under a version counter of its own (``Tensor.data``); owned."""
    cdef pb_storage *storage
    cdef pb_storage_extra *links
    memory = storage_original(memory)
    storage_extra(memory)
    storage = block_new()
    try:
        links = storage_extra(storage)
    except BaseException:
        pb_pool_release(pool, storage)
        raise
    links.next = memory.extra.aliases
    if links.next != NULL:
        links.next.extra.previous = storage
    memory.extra.aliases = storage
    storage.data = memory.data
    storage.nbytes = memory.nbytes
    storage.device_type = memory.device_type
    storage.device_index = memory.device_index
    storage.flags = memory.flags
    memory.refcount += 1
    storage.memory = memory
    return storage


cdef void unlink_alias(pb_storage *storage) noexcept:
    """Take an alias off the list of its original."""
    cdef pb_storage_extra *links = storage.extra
    if links.previous != NULL:
        links.previous.extra.next = links.next
    else:
        storage.memory.extra.aliases = links.next
    if links.next != NULL:
        links.next.extra.previous = links.previous


cdef int storage_swap(pb_storage *storage, pb_storage *other) except -1:
    """Exchange the memory of two originals; versions and aliases stay, and see the new memory."""
    cdef pb_storage_extra *extra = storage_extra(storage)
    cdef pb_storage_extra *others = storage_extra(other)
    refuse_capture(b"the memory of a tensor is replaced or resized")
    cdef uint32_t changed = (storage.flags ^ other.flags) & MEMORY_FLAGS
    storage.data, other.data = other.data, storage.data
    storage.nbytes, other.nbytes = other.nbytes, storage.nbytes
    storage.device_type, other.device_type = other.device_type, storage.device_type
    storage.device_index, other.device_index = other.device_index, storage.device_index
    storage.owner, other.owner = other.owner, storage.owner
    extra.capacity, others.capacity = others.capacity, extra.capacity
    storage.flags ^= changed
    other.flags ^= changed
    update_aliases(storage)
    update_aliases(other)
    return 0


cdef void update_aliases(pb_storage *storage) noexcept:
    """Give the aliases of an original its memory."""
    cdef pb_storage *alias = storage.extra.aliases
    while alias != NULL:
        alias.data = storage.data
        alias.nbytes = storage.nbytes
        alias.device_type = storage.device_type
        alias.device_index = storage.device_index
        alias.flags = alias.flags & ~MEMORY_FLAGS | storage.flags & MEMORY_FLAGS
        alias = alias.extra.next


cdef int storage_shrink(pb_storage *storage, int64_t nbytes) except -1:
    """Make an original smaller, or larger within its memory, which stays until it is freed.

    So a tensor that reaches beyond the new end reads old elements and no foreign memory.
    """
    cdef pb_storage_extra *extra = storage_extra(storage)
    if extra.capacity == 0:
        extra.capacity = storage.nbytes
    storage.nbytes = nbytes
    update_aliases(storage)
    return 0


cdef void storage_free(pb_storage *storage) noexcept:
    cdef pb_storage *memory = storage.memory
    cdef PyObject *owner = storage.owner
    cdef pb_device_type *found
    if storage.extra != NULL and storage.extra.capacity:
        storage.nbytes = storage.extra.capacity
    if memory != NULL:
        unlink_alias(storage)
        memory.refcount -= 1
        if memory.refcount == 0:
            storage_free(memory)
    elif owner != NULL:
        Py_DECREF(<object>owner)
    elif storage.data != NULL:
        if process.observer != NULL:
            notify_memory(storage.device_type, storage.device_index, storage.data, -storage.nbytes)
        if process.capture != NULL:
            process.capture.freed(process.capture.self, storage)
        found = device_types() + storage.device_type
        if found.backend == NULL:
            free(storage.data)
        else:
            found.backend.release(found.backend.self, storage.device_index, storage.data,
                                  storage.nbytes)
    if storage.extra != NULL:
        Py_XDECREF(storage.extra.written_at)
        pb_pool_release(pool, storage.extra)
    pb_pool_release(pool, storage)
