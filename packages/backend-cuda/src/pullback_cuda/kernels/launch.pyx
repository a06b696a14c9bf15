"""Kernels by name, their launches, and memory that lives only as long as the work on a stream.

A kernel is looked for in its family's image when it is launched for the first time on a device.
"""

from cpython.exc cimport PyErr_SetObject
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_New
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc
from libc.string cimport strncpy

from pullback.abi cimport (
    PB_E_MEMORY, PB_E_PYTHON, PB_E_RUNTIME, PB_KERNEL_CAPSULE, PB_MESSAGE_SIZE, PB_OK, pb_call,
    pb_kernel)
from pullback_cuda._devices cimport (
    FAILURE_COUNT, FAILURE_INDEX, FAILURE_TARGET, current_number, device_ready, device_table,
    enter_context, is_closed, leave_context, pb_cuda_device, pb_failure)
from pullback_cuda._memory cimport block_release, block_take


cdef dict kernels = {}


cdef pb_cuda_kernel *kernel_named(str family, str name) except NULL:
    """Return a kernel of a family; nothing is loaded before it is launched."""
    cdef pb_cuda_kernel *kernel
    known = kernels.get((family, name))
    if known is not None:
        return <pb_cuda_kernel *><size_t>known
    kernel = <pb_cuda_kernel *>calloc(1, sizeof(pb_cuda_kernel))
    if kernel == NULL:
        raise MemoryError()
    Py_INCREF(family)
    Py_INCREF(name)
    kernel.family = <PyObject *>family
    kernel.name = <PyObject *>name
    kernels[family, name] = <size_t>kernel
    return kernel


def kernel_names():
    """Return the (family, name) of every kernel that the host side may launch."""
    return sorted(kernels)


cdef object new_kernel(int mask, pb_kernel kernel):
    """Return what a plugin registers for one slot: dtype mask and capsule."""
    return mask, PyCapsule_New(<void *>kernel, PB_KERNEL_CAPSULE, NULL)


cdef int fail(pb_call *call, int code, const char *text) noexcept nogil:
    """Say why a call failed; return the code."""
    write_message(call.message, text)
    return code


cdef inline void write_message(char *message, const char *text) noexcept nogil:
    if message != NULL:
        strncpy(message, text, PB_MESSAGE_SIZE - 1)
        message[PB_MESSAGE_SIZE - 1] = 0


cdef int fail_with(char *message, object error) noexcept:
    """Say why something failed in an exception's words; return its code. Interrupts go on."""
    cdef bytes text
    if not isinstance(error, Exception):
        PyErr_SetObject(type(error), error)
        return PB_E_PYTHON
    try:
        text = str(error).encode()
    except Exception:
        text = b"the driver failed"
    write_message(message, text)
    return PB_E_MEMORY if isinstance(error, MemoryError) else PB_E_RUNTIME


# ---- launches ------------------------------------------------------------------------------------

cdef int launch(pb_call *call, pb_cuda_kernel *kernel, const void *arguments, size_t size,
                int64_t blocks, int threads, size_t shared_bytes) noexcept nogil:
    """Launch a kernel on the current stream of the call's device, on a row of blocks."""
    return launch_grid(call, kernel, arguments, size, blocks, 1, 1, threads, shared_bytes)


cdef int launch_grid(pb_call *call, pb_cuda_kernel *kernel, const void *arguments, size_t size,
                     int64_t blocks_x, int blocks_y, int blocks_z, int threads,
                     size_t shared_bytes) noexcept nogil:
    """Launch a kernel on the current stream of the call's device."""
    with gil:
        try:
            launch_now(call.device, kernel, arguments, size, blocks_x, blocks_y, blocks_z, threads,
                       shared_bytes)
        except BaseException as error:
            return end_call(call, error)
    return PB_OK


cdef int end_call(pb_call *call, object error) noexcept:
    """Say why a call ends early. Nobody asks what its kernels told; the next call is another."""
    device_table()[call.device].recorded = NULL
    return fail_with(call.message, error)


cdef tuple block_shapes = tuple([(threads, 1, 1) for threads in range(1025)])


cdef int launch_now(int number, pb_cuda_kernel *kernel, const void *arguments, size_t size,
                    int64_t blocks_x, int blocks_y, int blocks_z, int threads,
                    size_t shared_bytes) except -1:
    cdef pb_cuda_device *device = device_table() + number
    cdef PyObject *launcher = kernel.launchers[number]
    cdef void *before
    if launcher == NULL or is_closed():
        device_ready(number)
        launcher = find_launcher(number, kernel)
    before = enter_context(device)
    try:
        (<object>launcher)(
            (blocks_x, blocks_y, blocks_z), block_shapes[threads],
            PyBytes_FromStringAndSize(<const char *>arguments, size), shared_bytes,
            <object>device.streams[current_number(number)].object)
    except Exception as error:
        raise RuntimeError(f"cuda:{number}: the launch of {<str>kernel.name} failed: "
                           f"{error}") from error
    finally:
        leave_context(device, before)
    return 0


cdef PyObject *find_launcher(int number, pb_cuda_kernel *kernel) except NULL:
    """Load a kernel on a device."""
    device = <object>device_table()[number].object
    found = device.function(<str>kernel.family, <str>kernel.name)._launch_kernel
    Py_INCREF(found)
    kernel.launchers[number] = <PyObject *>found
    return kernel.launchers[number]


# ---- memory for one call -------------------------------------------------------------------------

cdef int scratch_take(pb_call *call, size_t nbytes, void **memory) noexcept nogil:
    """Take memory for kernels that are launched next; return the code of a failure."""
    memory[0] = NULL
    with gil:
        try:
            memory[0] = block_take(call.device, nbytes)
        except BaseException as error:
            return end_call(call, error)
    return PB_OK


cdef void scratch_give(pb_call *call, void *memory, size_t nbytes) noexcept nogil:
    """Give memory back. What the stream does next may reuse it: that comes after its last use."""
    with gil:
        block_release(call.device, memory)


cdef int processors(pb_call *call) noexcept nogil:
    """Return how many multiprocessors the device has."""
    cdef int count = device_table()[call.device].processors
    return count if count > 0 else 1


# ---- failures ------------------------------------------------------------------------------------

cdef void *failure_record(pb_call *call) noexcept nogil:
    """Return where kernels of the call's device say that they met bad input.

    What an earlier op has told there, and nobody has asked yet, is put aside: it is not of this op.
    """
    cdef pb_cuda_device *device = device_table() + call.device
    if device.recorded != call and device.failure != NULL and device.failure.code != 0 and (
            settle_failure(call) == PB_OK):
        if device.earlier.code == 0:
            device.earlier = device.failure[0]
        device.failure.code = 0
        device.failure.claimed = 0
    device.recorded = call
    return device.failure


cdef int settle_failure(pb_call *call) noexcept nogil:
    """Wait for the kernel that told a failure: it may still be at it, and tell once more."""
    with gil:
        try:
            (<object>device_table()[call.device].object).synchronize()
        except BaseException as error:
            return fail_with(call.message, error)
    return PB_OK


cdef int failure_check(pb_call *call) noexcept nogil:
    """Return the code of a failure that has been told already, with its message; else PB_OK."""
    cdef pb_failure *failure = device_table()[call.device].failure
    cdef int code
    device_table()[call.device].recorded = NULL
    if failure == NULL or failure.code == 0:
        return PB_OK
    code = settle_failure(call)
    return clear_failure(failure, call.message) if code == PB_OK else code


cdef void tell_failure(pb_failure *failure, char *message) noexcept nogil:
    """Write what a kernel found."""
    cdef long long index = failure.index, size = failure.size
    if failure.claimed >= FAILURE_INDEX:
        snprintf(message, PB_MESSAGE_SIZE,
                 b"index %lld is out of bounds for dimension %d with size %lld", index,
                 <int>failure.claimed - <int>FAILURE_INDEX, size)
    elif failure.claimed == FAILURE_TARGET:
        snprintf(message, PB_MESSAGE_SIZE, b"Target %lld is out of bounds.", index)
    elif failure.claimed == FAILURE_COUNT:
        snprintf(message, PB_MESSAGE_SIZE,
                 b"%lld elements are not 0, and there were %lld when they were counted", index,
                 size)
    else:
        snprintf(message, PB_MESSAGE_SIZE, b"ZeroDivisionError")


cdef int take_failure(int number, char *message) noexcept nogil:
    """Return the code of a failure of any op so far, with its message; else PB_OK."""
    cdef pb_cuda_device *device = device_table() + number
    if device.earlier.code != 0:
        if device.failure.code != 0:    # one is told
            clear_failure(device.failure, NULL)
        return clear_failure(&device.earlier, message)
    if device.failure == NULL or device.failure.code == 0:
        return PB_OK
    return clear_failure(device.failure, message)


cdef int clear_failure(pb_failure *failure, char *message) noexcept nogil:
    """Write what was found, and forget it; return the code."""
    cdef int code = failure.code
    if message != NULL:
        tell_failure(failure, message)
    failure.code = 0
    failure.claimed = 0
    return code
