"""The backend that core calls: memory, copies, streams and marks of ``cuda``, as a capsule."""

from cpython.exc cimport PyErr_SetInterrupt, PyErr_SetObject
from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.pycapsule cimport PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t
from libc.string cimport memset

from pullback.abi cimport (
    PB_ABI_VERSION, PB_BACKEND_ASYNC, PB_BACKEND_CAPSULE, PB_DEVICE_TO_HOST, PB_E_PYTHON,
    PB_E_RUNTIME, PB_E_VALUE, PB_HOST_TO_DEVICE, PB_NON_BLOCKING, PB_OK, pb_backend)
from pullback_cuda.runtime.contexts cimport (
    MAX_DEVICES, current_number, device_ready, device_table, enter_context, is_closed,
    leave_context, pb_cuda_device, set_current_number, stream_number)
from pullback_cuda.runtime.allocator cimport block_release, block_take, note_use
from pullback_cuda.runtime.allocator import memory_counts, release_cached, reset_peaks
from pullback_cuda.runtime.failures cimport fail_with, take_failure

from pullback_cuda.runtime import pinned

cdef object driver = None


def bind(pycuda_driver):
    """Install pycuda's module."""
    global driver
    driver = pycuda_driver


cdef int known_count = -1               # devices do not come and go


cdef int device_count(void *self) noexcept:
    global known_count
    if known_count < 0:
        try:
            known_count = min(<int>driver.Device.count(), <int>MAX_DEVICES)
        except Exception:
            return 0
    return known_count


# ---- memory --------------------------------------------------------------------------------------

cdef void *allocate(void *self, int device, size_t nbytes) except? NULL:
    return block_take(device, nbytes)


cdef void release(void *self, int device, void *data, size_t nbytes) noexcept:
    block_release(device, data)


cdef void memory_stats(void *self, int device, int64_t *stats) noexcept:
    counts = memory_counts(device)
    stats[0] = counts["allocated"]
    stats[1] = counts["allocated_peak"]
    stats[2] = counts["reserved"]
    stats[3] = counts["allocations"]


cdef void empty_cache(void *self, int device) noexcept:
    try:
        release_cached(device)
    except BaseException as error:      # core checks for an exception
        PyErr_SetObject(type(error), error)


cdef void reset_peak(void *self, int device) noexcept:
    reset_peaks(device)


# ---- copies --------------------------------------------------------------------------------------

cdef inline object stream_of(pb_cuda_device *device):
    return <object>device.streams[current_number(device.number)].object


cdef int copy_bytes(void *self, int device, void *dst, size_t dst_offset, const void *src,
                    size_t src_offset, size_t nbytes, int kind, char *message) noexcept:
    cdef char *to = <char *>dst + dst_offset
    cdef char *origin = <char *>src + src_offset
    try:
        copy_now(device_ready(device), to, origin, nbytes, kind)
    except BaseException as error:
        return fail_with(message, error)
    return take_failure(device, message) if kind == PB_DEVICE_TO_HOST else PB_OK


cdef int copy_now(pb_cuda_device *device, char *to, char *origin, size_t nbytes,
                  int kind) except -1:
    """Copy on the current stream; wait for host copies unless PB_NON_BLOCKING is set."""
    cdef void *before = enter_context(device)
    cdef int way = kind & ~<int>PB_NON_BLOCKING
    cdef bint noted = False
    stream = stream_of(device)
    try:
        if way == PB_HOST_TO_DEVICE:
            driver.memcpy_htod_async(
                <size_t>to, PyMemoryView_FromMemory(origin, nbytes, PyBUF_READ), stream)
        elif way == PB_DEVICE_TO_HOST:
            driver.memcpy_dtoh_async(
                PyMemoryView_FromMemory(to, nbytes, PyBUF_WRITE), <size_t>origin, stream)
        else:
            driver.memcpy_dtod_async(<size_t>to, <size_t>origin, nbytes, stream)
            return 0
        if kind & PB_NON_BLOCKING:
            try:
                pinned.in_use(<size_t>(origin if way == PB_HOST_TO_DEVICE else to),
                              <object>device.object, current_number(device.number))
                noted = True
            finally:
                if not noted:           # its use could not be noted
                    stream.synchronize()
        else:
            stream.synchronize()
    except driver.Error as error:
        raise RuntimeError(f"cuda:{device.number}: {error}") from error
    finally:
        leave_context(device, before)
    return 0


cdef int copy_between(void *self, int dst_device, void *dst, size_t dst_offset, int src_device,
                      const void *src, size_t src_offset, size_t nbytes, char *message) noexcept:
    try:
        origin = <object>device_ready(src_device).object
        target = <object>device_ready(dst_device).object
        target.copy_from(origin, <size_t>dst + dst_offset, <size_t>src + src_offset, nbytes)
    except BaseException as error:
        return fail_with(message, error)
    return PB_OK


cdef void *allocate_pinned(void *self, size_t nbytes) except? NULL:
    return <void *><size_t>pinned.take(nbytes)


cdef void release_pinned(void *self, void *data, size_t nbytes) noexcept:
    if is_closed():
        return
    try:
        pinned.give(<size_t>data)
    except BaseException:
        pinned.give(<size_t>data)       # an interrupt; it is raised later
        PyErr_SetInterrupt()


cdef int synchronize(void *self, int device, char *message) noexcept:
    try:
        (<object>device_ready(device).object).synchronize()
    except BaseException as error:
        return fail_with(message, error)
    return take_failure(device, message)


# ---- streams and marks ---------------------------------------------------------------------------

cdef void *current_stream(void *self, int device) noexcept:
    cdef pb_cuda_device *found = device_table() + device
    if not found.ready and not is_closed():
        try:
            device_ready(device)        # the caller needs the handle of a stream
        except KeyboardInterrupt:
            PyErr_SetInterrupt()
            return NULL
        except Exception:
            return NULL                 # the first op says why
    return found.streams[current_number(device)].handle


cdef int set_stream(void *self, int device, void *stream, void **previous) noexcept:
    cdef pb_cuda_device *found
    cdef int number = 0
    try:
        found = device_ready(device)
    except BaseException as error:      # there is no message argument: core raises it
        PyErr_SetObject(type(error), error)
        return PB_E_PYTHON
    if stream != NULL:
        number = stream_number(found, stream)
        if number < 0:
            return PB_E_VALUE
    previous[0] = found.streams[set_current_number(device, number)].handle
    return PB_OK


cdef int wait_stream(void *self, int device, void *waiter, int other_device, void *awaited,
                     char *message) noexcept:
    cdef int first, second
    try:
        first = stream_number(device_ready(device), waiter) if waiter != NULL else 0
        second = stream_number(device_ready(other_device), awaited) if awaited != NULL else 0
        other = <object>device_table()[other_device].object
        if first >= 0 and second >= 0:
            (<object>device_table()[device].object).wait(first, other, second)
        else:
            (<object>device_table()[device].object).wait_for_foreign(
                <size_t>waiter, other, <size_t>awaited)
    except BaseException as error:
        return fail_with(message, error)
    return PB_OK


cdef int use_memory(void *self, int device, void *data, void *stream) noexcept:
    try:
        note_use(device, data, stream)
    except BaseException as error:
        PyErr_SetObject(type(error), error)
        return PB_E_PYTHON
    return PB_OK


cdef void *mark(void *self, int device) noexcept:
    try:
        event = (<object>device_ready(device).object).mark(current_number(device))
    except KeyboardInterrupt:
        PyErr_SetInterrupt()
        return NULL
    except Exception:
        return NULL
    Py_INCREF(event)
    return <void *>event


cdef int elapsed(void *self, int device, void *first, void *last, double *microseconds,
                 char *message) noexcept:
    try:
        microseconds[0] = (<object>device_ready(device).object).elapsed(<object>first,
                                                                        <object>last)
    except KeyboardInterrupt:           # measuring must not raise; the interrupt is raised later
        PyErr_SetInterrupt()
        return PB_E_RUNTIME
    except BaseException as error:
        return fail_with(message, error)
    return PB_OK


cdef void release_mark(void *self, int device, void *mark) noexcept:
    if not is_closed():
        (<object>device_table()[device].object).give_event(<object>mark)
    Py_DECREF(<object>mark)


cdef pb_backend backend
memset(&backend, 0, sizeof(backend))
backend.size = sizeof(pb_backend)
backend.abi_version = PB_ABI_VERSION
backend.flags = PB_BACKEND_ASYNC
backend.device_count = device_count
backend.allocate = <void *(*)(void *, int, size_t) noexcept>allocate
backend.release = release
backend.copy_bytes = copy_bytes
backend.synchronize = synchronize
backend.current_stream = current_stream
backend.memory_stats = memory_stats
backend.empty_cache = empty_cache
backend.reset_peak = reset_peak
backend.mark = mark
backend.elapsed = elapsed
backend.release_mark = release_mark
backend.wait_stream = wait_stream
backend.set_stream = set_stream
backend.use_memory = use_memory
backend.copy_between = copy_between
backend.allocate_pinned = <void *(*)(void *, size_t) noexcept>allocate_pinned
backend.release_pinned = release_pinned

BACKEND = PyCapsule_New(&backend, PB_BACKEND_CAPSULE, NULL)
