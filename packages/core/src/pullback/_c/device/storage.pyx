"""Storages: blocks of memory with a version counter, shared by tensors, views and aliases."""

from cpython.exc cimport PyErr_Fetch, PyErr_Occurred, PyErr_Restore
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from pullback.pool cimport pb_pool, pb_pool_allocate, pb_pool_release
from pullback._c.device.device cimport DEVICE_META, device_type, device_types, pb_device_type
from pullback._c.base.state cimport globals_, pb_globals, process_pool, thread_state
from pullback._c.base.types cimport STORAGE_INFERENCE, STORAGE_READONLY, pb_storage

from pullback._c.base.errors import OutOfMemoryError

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
    storage.written_at = NULL
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
    return storage


cdef pb_storage *storage_foreign(void *data, int64_t nbytes, int device_type_id,
                                 int device_index, object owner, bint readonly) except NULL:
    """Wrap memory that `owner` keeps alive; owned."""
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


cdef pb_storage *storage_alias(pb_storage *memory) except NULL:
    """Return the same memory under a version counter of its own (``Tensor.data``); owned."""
    cdef pb_storage *storage = block_new()
    while memory.memory != NULL:
        memory = memory.memory
    storage.data = memory.data
    storage.nbytes = memory.nbytes
    storage.device_type = memory.device_type
    storage.device_index = memory.device_index
    storage.flags = memory.flags
    memory.refcount += 1
    storage.memory = memory
    return storage


cdef void storage_free(pb_storage *storage) noexcept:
    cdef pb_storage *memory = storage.memory
    cdef PyObject *owner = storage.owner
    cdef pb_device_type *found
    if memory != NULL:
        memory.refcount -= 1
        if memory.refcount == 0:
            storage_free(memory)
    elif owner != NULL:
        Py_DECREF(<object>owner)
    elif storage.data != NULL:
        if process.observer != NULL:
            notify_memory(storage.device_type, storage.device_index, storage.data, -storage.nbytes)
        found = device_types() + storage.device_type
        if found.backend == NULL:
            free(storage.data)
        else:
            found.backend.release(found.backend.self, storage.device_index, storage.data,
                                  storage.nbytes)
    if storage.written_at != NULL:
        Py_DECREF(<object>storage.written_at)
    pb_pool_release(pool, storage)
