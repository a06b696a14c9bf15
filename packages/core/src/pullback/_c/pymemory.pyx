"""Backends whose memory is managed in Python: an object with a few methods becomes a pb_backend.

Every function here is called with the interpreter lock held. What the object raises cannot pass
through the C interface: a failed allocation gives NULL, a failed copy its message, and what a
release raises is shown as unraisable.
"""

import sys

from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.pycapsule cimport PyCapsule_New
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc
from libc.string cimport memset, strncpy

from pullback.abi cimport (
    PB_ABI_VERSION, PB_BACKEND_CAPSULE, PB_DEVICE_TO_HOST, PB_HOST_TO_DEVICE, PB_MESSAGE_SIZE,
    pb_backend)

__all__ = ["REQUIRED", "wrap_memory"]

REQUIRED = ("allocate", "release", "write", "read", "copy")


def wrap_memory(str device, memory):
    """Return a backend capsule that calls the methods of ``memory``.

    Raises: TypeError when a required method is missing.
    """
    cdef pb_backend *backend
    for name in REQUIRED:
        if not callable(getattr(memory, name, None)):
            raise TypeError(f"backend {device!r}: pullback_backend() must return a PyCapsule named "
                            f"'pb_backend', or an object with the methods {', '.join(REQUIRED)}; "
                            f"{type(memory).__name__} has no {name}()")
    backend = <pb_backend *>calloc(1, sizeof(pb_backend))
    if backend == NULL:
        raise MemoryError()
    Py_INCREF(memory)                   # as long as the process: tensors may outlive everything
    backend.size = sizeof(pb_backend)
    backend.abi_version = PB_ABI_VERSION
    backend.self = <void *>memory
    backend.device_count = device_count
    backend.allocate = allocate
    backend.release = release
    backend.copy_bytes = copy_bytes
    if hasattr(memory, "synchronize"):
        backend.synchronize = synchronize
    if hasattr(memory, "memory_stats"):
        backend.memory_stats = memory_stats
    if hasattr(memory, "empty_cache"):
        backend.empty_cache = empty_cache
    return PyCapsule_New(backend, PB_BACKEND_CAPSULE, NULL)


cdef int device_count(void *self) noexcept:
    try:
        return (<object>self).device_count() if hasattr(<object>self, "device_count") else 1
    except BaseException as error:
        report(error, "device_count")
        return 0


cdef void *allocate(void *self, int device, size_t nbytes) noexcept:
    cdef size_t handle = 0
    try:
        handle = (<object>self).allocate(device, nbytes)
    except MemoryError:
        pass
    except BaseException as error:
        report(error, "allocate")
    return <void *>handle


cdef void release(void *self, int device, void *data, size_t nbytes) noexcept:
    try:
        (<object>self).release(device, <size_t>data, nbytes)
    except BaseException as error:
        report(error, "release")


cdef int copy_bytes(void *self, int device, void *dst, size_t dst_offset, const void *src,
                    size_t src_offset, size_t nbytes, int kind, char *message) noexcept:
    cdef char *host
    try:
        if kind == PB_HOST_TO_DEVICE:
            host = <char *>src + src_offset
            (<object>self).write(device, <size_t>dst, dst_offset,
                                 PyMemoryView_FromMemory(host, nbytes, PyBUF_READ))
        elif kind == PB_DEVICE_TO_HOST:
            host = <char *>dst + dst_offset
            (<object>self).read(device, <size_t>src, src_offset,
                                PyMemoryView_FromMemory(host, nbytes, PyBUF_WRITE))
        else:
            (<object>self).copy(device, <size_t>dst, dst_offset, <size_t>src, src_offset, nbytes)
    except BaseException as error:
        fill_message(message, error)
        return 1
    return 0


cdef int synchronize(void *self, int device, char *message) noexcept:
    try:
        (<object>self).synchronize(device)
    except BaseException as error:
        fill_message(message, error)
        return 1
    return 0


cdef void memory_stats(void *self, int device, int64_t *stats) noexcept:
    memset(stats, 0, 4 * sizeof(int64_t))
    try:
        for i, value in enumerate((<object>self).memory_stats(device)[:4]):
            stats[i] = value
    except BaseException as error:
        report(error, "memory_stats")


cdef void empty_cache(void *self, int device) noexcept:
    try:
        (<object>self).empty_cache(device)
    except BaseException as error:
        report(error, "empty_cache")


cdef int fill_message(char *message, object error) except -1:
    text = f"{type(error).__name__}: {error}".encode()
    strncpy(message, text, PB_MESSAGE_SIZE - 1)
    message[PB_MESSAGE_SIZE - 1] = 0
    return 0


class Unraisable:
    """What ``sys.unraisablehook`` is told about an exception that has nowhere to go."""

    def __init__(self, error, method):
        self.exc_type = type(error)
        self.exc_value = error
        self.exc_traceback = error.__traceback__
        self.err_msg = f"Exception ignored in a backend's {method}()"
        self.object = None


cdef int report(object error, str method) except -1:
    sys.unraisablehook(Unraisable(error, method))
    return 0
