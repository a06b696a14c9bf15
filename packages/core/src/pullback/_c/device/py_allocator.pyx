# build: small
"""Allocators written in Python: wraps an object with a few methods as a `pb_backend`.

Every function here is called with the interpreter lock held. An exception of the object cannot
cross the C interface: a failed allocation returns NULL, a failed copy returns a code and a message,
and a function without a result prints it by ``sys.unraisablehook``.
"""

from cpython.exc cimport PyErr_Fetch, PyErr_Restore, PyErr_SetObject
from cpython.number cimport PyNumber_Index
from cpython.object cimport PyObject
from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.pycapsule cimport PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc
from libc.string cimport memset, strncpy

from pullback.abi cimport (
    PB_ABI_VERSION, PB_BACKEND_ASYNC, PB_BACKEND_CAPSULE, PB_BACKEND_HANDLES, PB_DEVICE_TO_HOST,
    PB_E_INDEX, PB_E_MEMORY, PB_E_PYTHON, PB_E_RUNTIME, PB_HOST_TO_DEVICE, PB_MESSAGE_SIZE,
    PB_NON_BLOCKING, pb_backend, pb_part)

__all__ = ["REQUIRED", "wrap_memory"]

memories = {}                           # by device type: the object of the last plugin
REQUIRED = ("allocate", "release", "write", "read", "copy")
STREAMS = ("current_stream", "set_stream", "wait_stream")


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
    for name in STREAMS:
        if hasattr(memory, "set_stream") and not hasattr(memory, name):
            raise TypeError(f"backend {device!r}: for streams {type(memory).__name__} needs the "
                            f"methods {', '.join(STREAMS)}, and has no {name}()")
    backend = <pb_backend *>calloc(1, sizeof(pb_backend))
    if backend == NULL:
        raise MemoryError()
    Py_INCREF(memory)                   # never released: tensors may outlive every other owner
    memories[device] = memory
    backend.size = sizeof(pb_backend)
    backend.abi_version = PB_ABI_VERSION
    backend.flags = PB_BACKEND_HANDLES
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
    if hasattr(memory, "reset_peak_memory_stats"):
        backend.reset_peak = reset_peak
    if hasattr(memory, "mark"):
        backend.mark = mark
        backend.elapsed = elapsed
        backend.release_mark = release_mark
    if hasattr(memory, "set_stream"):
        backend.current_stream = current_stream
        backend.set_stream = set_stream
        backend.wait_stream = wait_stream
    if hasattr(memory, "use_memory"):
        backend.use_memory = use_memory
    if hasattr(memory, "copy_between"):
        backend.copy_between = copy_between
    if hasattr(memory, "allocate_pinned"):
        backend.allocate_pinned = allocate_pinned
        backend.release_pinned = release_pinned
    if hasattr(memory, "compile"):
        backend.compile = compile_part
        backend.execute = execute_part
        backend.release_executor = release_executor
    if getattr(memory, "non_blocking", False):
        backend.flags |= PB_BACKEND_ASYNC
    return PyCapsule_New(backend, PB_BACKEND_CAPSULE, NULL)


cdef int device_count(void *self) noexcept:
    return (<object>self).device_count() if hasattr(<object>self, "device_count") else 1


cdef void *allocate(void *self, int device, size_t nbytes) noexcept:
    try:
        return handle_of("allocate", (<object>self).allocate(device, nbytes))
    except MemoryError:
        return NULL
    except BaseException as error:
        set_failure("allocate", error)
        return NULL


cdef void *handle_of(str method, object handle) except NULL:
    """Return what a method that allocates memory returned, as a pointer."""
    cdef size_t address = 0
    try:
        address = PyNumber_Index(handle)
    except (TypeError, OverflowError):
        pass
    if address == 0:
        raise BadHandle(f"{method}() of a backend's memory must return an integer that is not 0 "
                        f"and fits a pointer, not {handle!r}")
    return <void *>address


class BadHandle(TypeError):
    """A method that allocates memory returned no handle."""


cdef void set_failure(str method, object error) noexcept:
    """Set the exception of a method whose C function returns no code."""
    if isinstance(error, BadHandle):
        PyErr_SetObject(TypeError, TypeError(str(error)))
    elif isinstance(error, Exception):
        failure = RuntimeError(f"{method}() failed: {type(error).__name__}: {error}")
        failure.__cause__ = error
        PyErr_SetObject(RuntimeError, failure)
    else:
        PyErr_SetObject(type(error), error)


cdef void release(void *self, int device, void *data, size_t nbytes) noexcept:
    """Release memory. A pending exception, which may be why tensors are freed, survives."""
    cdef PyObject *kind
    cdef PyObject *value
    cdef PyObject *trace
    PyErr_Fetch(&kind, &value, &trace)
    call_release(<object>self, device, <size_t>data, nbytes)
    PyErr_Restore(kind, value, trace)


cdef void call_release(object self, int device, size_t handle, size_t nbytes) noexcept:
    self.release(device, handle, nbytes)


cdef int copy_bytes(void *self, int device, void *dst, size_t dst_offset, const void *src,
                    size_t src_offset, size_t nbytes, int kind, char *message) noexcept:
    cdef char *host
    cdef dict options = {"non_blocking": True} if kind & PB_NON_BLOCKING else {}
    try:
        if kind & ~PB_NON_BLOCKING == PB_HOST_TO_DEVICE:
            host = <char *>src + src_offset
            (<object>self).write(device, <size_t>dst, dst_offset,
                                 PyMemoryView_FromMemory(host, nbytes, PyBUF_READ), **options)
        elif kind & ~PB_NON_BLOCKING == PB_DEVICE_TO_HOST:
            host = <char *>dst + dst_offset
            (<object>self).read(device, <size_t>src, src_offset,
                                PyMemoryView_FromMemory(host, nbytes, PyBUF_WRITE), **options)
        else:
            (<object>self).copy(device, <size_t>dst, dst_offset, <size_t>src, src_offset, nbytes)
    except BaseException as error:
        return report(error, message)
    return 0


cdef int synchronize(void *self, int device, char *message) noexcept:
    try:
        (<object>self).synchronize(device)
    except BaseException as error:
        return report(error, message)
    return 0


cdef void memory_stats(void *self, int device, int64_t *stats) noexcept:
    cdef int i
    memset(stats, 0, 4 * sizeof(int64_t))
    found = tuple((<object>self).memory_stats(device))
    for i in range(min(4, <int>len(found))):
        stats[i] = found[i]


cdef void empty_cache(void *self, int device) noexcept:
    try:
        (<object>self).empty_cache(device)
    except BaseException as error:
        PyErr_SetObject(type(error), error)


cdef void reset_peak(void *self, int device) noexcept:
    (<object>self).reset_peak_memory_stats(device)


cdef void *mark(void *self, int device) noexcept:
    found = (<object>self).mark(device)
    if found is None:
        return NULL
    Py_INCREF(found)
    return <void *>found


cdef int elapsed(void *self, int device, void *first, void *last, double *microseconds,
                 char *message) noexcept:
    try:
        microseconds[0] = (<object>self).elapsed(device, <object>first, <object>last)
    except BaseException as error:
        return describe(error, message)
    return 0


cdef void release_mark(void *self, int device, void *mark) noexcept:
    Py_DECREF(<object>mark)


cdef void *current_stream(void *self, int device) noexcept:
    return <void *><size_t>(<object>self).current_stream(device)


cdef int set_stream(void *self, int device, void *stream, void **previous) noexcept:
    try:
        previous[0] = <void *><size_t>(<object>self).set_stream(device, <size_t>stream)
    except BaseException as error:
        PyErr_SetObject(type(error), error)
        return PB_E_PYTHON
    return 0


cdef int wait_stream(void *self, int device, void *waiter, int other_device, void *awaited,
                     char *message) noexcept:
    try:
        (<object>self).wait_stream(device, <size_t>waiter, other_device, <size_t>awaited)
    except BaseException as error:
        return report(error, message)
    return 0


cdef int use_memory(void *self, int device, void *data, void *stream) noexcept:
    try:
        (<object>self).use_memory(device, <size_t>data, <size_t>stream)
    except BaseException as error:
        PyErr_SetObject(type(error), error)
        return PB_E_PYTHON
    return 0


cdef int copy_between(void *self, int dst_device, void *dst, size_t dst_offset, int src_device,
                      const void *src, size_t src_offset, size_t nbytes, char *message) noexcept:
    try:
        (<object>self).copy_between(dst_device, <size_t>dst, dst_offset, src_device, <size_t>src,
                                    src_offset, nbytes)
    except BaseException as error:
        return report(error, message)
    return 0


cdef void *allocate_pinned(void *self, size_t nbytes) noexcept:
    try:
        return handle_of("allocate_pinned", (<object>self).allocate_pinned(nbytes))
    except MemoryError:
        return NULL
    except BaseException as error:
        set_failure("allocate_pinned", error)
        return NULL


cdef void release_pinned(void *self, void *data, size_t nbytes) noexcept:
    (<object>self).release_pinned(<size_t>data, nbytes)


# Set by py_kernel.pyx: returns the calls of a part.
cdef object describe_part = None


def set_describe_part(describe):
    """Install the function that describes the calls of a part of a compiled program."""
    global describe_part
    describe_part = describe


# What `compile` of a memory object returned, and the part that it is for.
cdef class Executor:
    cdef object run
    cdef const pb_part *part


cdef void *compile_part(void *self, const pb_part *part) noexcept:
    cdef Executor made
    try:
        run = (<object>self).compile(part.calls[0].device, describe_part(<size_t>part))
        if run is None:
            return NULL
        if not callable(run):
            raise TypeError("compile() of a backend's memory must return None or a function, "
                            f"not {type(run).__name__}")
    except BaseException as error:
        PyErr_SetObject(type(error), error)
        return NULL
    made = Executor.__new__(Executor)
    made.run = run
    made.part = part
    Py_INCREF(made)
    return <void *>made


cdef int execute_part(void *self, void *executor, void *stream, int32_t *begun,
                      char *message) noexcept:
    cdef Executor made = <Executor>executor
    try:
        made.run(describe_part(<size_t>made.part))
    except BaseException as error:
        return report(error, message)
    return 0


cdef void release_executor(void *self, void *executor) noexcept:
    Py_DECREF(<Executor>executor)


cdef int report(object error, char *message) noexcept:
    """Return the code of an exception. KeyboardInterrupt and its like stay set: PB_E_PYTHON."""
    if isinstance(error, Exception):
        return describe(error, message)
    PyErr_SetObject(type(error), error)
    return PB_E_PYTHON


cdef int describe(object error, char *message) noexcept:
    """Write an exception's text into the message; return the code of its class."""
    cdef bytes text
    cdef str words
    cdef int code = PB_E_RUNTIME
    if isinstance(error, IndexError):
        code = PB_E_INDEX
    elif isinstance(error, MemoryError):
        code = PB_E_MEMORY
    words = str(error) if code != PB_E_RUNTIME else f"{type(error).__name__}: {error}"
    text = words.encode("utf-8", "replace")
    strncpy(message, text, PB_MESSAGE_SIZE - 1)
    message[PB_MESSAGE_SIZE - 1] = 0
    return code
