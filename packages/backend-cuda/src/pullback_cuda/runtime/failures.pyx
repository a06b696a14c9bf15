"""Failures of a call: exceptions and reports of kernels become a code and a message.

A kernel reports bad input in a record in pinned memory (failure.h). It is read when the
host waits for the device anyway.
"""

from cpython.exc cimport PyErr_SetObject
from libc.stdio cimport snprintf
from libc.string cimport strncpy

from pullback.abi cimport (
    PB_E_INDEX, PB_E_MEMORY, PB_E_PYTHON, PB_E_RUNTIME, PB_MESSAGE_SIZE, PB_OK, pb_call)
from pullback_cuda.runtime.contexts cimport (
    FAILURE_COUNT, FAILURE_INDEX, FAILURE_TARGET, device_table, pb_cuda_device, pb_failure)


cdef int fail(pb_call *call, int code, const char *text) noexcept nogil:
    """Say why a call failed; return the code."""
    write_message(call.message, text)
    return code


cdef inline void write_message(char *message, const char *text) noexcept nogil:
    if message != NULL:
        strncpy(message, text, PB_MESSAGE_SIZE - 1)
        message[PB_MESSAGE_SIZE - 1] = 0


cdef int fail_with(char *message, object error) noexcept:
    """Report an exception's text; return its code. Interrupts stay raised."""
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


# ---- reports of kernels --------------------------------------------------------------------------

cdef void *failure_record(pb_call *call) noexcept nogil:
    """Return the record in which kernels of the call's device report bad input.

    A report of an earlier op that was not raised yet is set aside: it is not of this op.
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
    """Wait for the kernel that reported: it may still run, and report again."""
    with gil:
        try:
            (<object>device_table()[call.device].object).synchronize()
        except BaseException as error:
            return fail_with(call.message, error)
    return PB_OK


cdef int failure_check(pb_call *call) noexcept nogil:
    """Return the code of a failure that is reported already, with its message; else PB_OK."""
    cdef pb_failure *failure = device_table()[call.device].failure
    cdef int code
    device_table()[call.device].recorded = NULL
    if failure == NULL or failure.code == 0:
        return PB_OK
    code = settle_failure(call)
    return clear_failure(failure, call.message) if code == PB_OK else code


cdef void write_failure(pb_failure *failure, char *message) noexcept nogil:
    """Write the message of a report."""
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
        if device.failure.code != 0:    # one failure is raised
            clear_failure(device.failure, NULL)
        return clear_failure(&device.earlier, message)
    if device.failure == NULL or device.failure.code == 0:
        return PB_OK
    return clear_failure(device.failure, message)


cdef int clear_failure(pb_failure *failure, char *message) noexcept nogil:
    """Write the message and clear the record; return the code."""
    cdef int code = failure.code
    if message != NULL:
        write_failure(failure, message)
    failure.code = 0
    failure.claimed = 0
    return code


def raise_failure(int number):
    """Raise the failure that a finished kernel reported, if any."""
    cdef char message[PB_MESSAGE_SIZE]
    cdef int code = take_failure(number, message)
    if code == PB_E_INDEX:
        raise IndexError(message.decode())
    if code != PB_OK:
        raise RuntimeError(message.decode())
