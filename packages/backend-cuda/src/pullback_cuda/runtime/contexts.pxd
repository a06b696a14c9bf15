# The devices of this process as compiled code sees them: their contexts, streams and failures.
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t


cdef enum:
    MAX_DEVICES = 32
    MAX_STREAMS = 64            # of a device: the default one, and those that Stream() deals out


cdef extern from "runtime/failure.h":
    enum:
        FAILURE_ZERO_DIVISOR
        FAILURE_COUNT
        FAILURE_TARGET
        FAILURE_INDEX
    ctypedef struct pb_failure "struct failure_record":
        int32_t code            # 0, or one of enum pb_error
        int32_t claimed
        int64_t index
        int64_t size


ctypedef struct pb_cuda_stream:
    void *handle                # CUstream
    PyObject *object            # pycuda's Stream; lives as long as the process


ctypedef struct pb_cuda_device:
    bint ready
    int number
    int sm_count
    int nstreams
    void *context               # CUcontext: the primary one
    PyObject *object            # the Device of devices.py; lives as long as the process
    pb_failure *failure         # pinned; devices read and write it at the same address
    pb_failure earlier          # reported by an earlier op, not raised yet
    const void *recorded        # the last call that got `failure`, until its check
    pb_cuda_stream streams[MAX_STREAMS]


cdef pb_cuda_device *device_ready(int number) except NULL
cdef pb_cuda_device *device_table() noexcept nogil
cdef int current_number(int device) noexcept nogil
cdef int set_current_number(int device, int number) noexcept nogil
cdef int stream_number(pb_cuda_device *device, void *handle) noexcept nogil
cdef void *enter_context(pb_cuda_device *device) except? NULL
cdef void leave_context(pb_cuda_device *device, void *previous) noexcept
cdef bint is_closed() noexcept nogil
