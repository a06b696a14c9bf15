# Launches of kernels, and workspace memory for the duration of a call.
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from pullback.abi cimport pb_call, pb_kernel
from pullback_cuda.runtime.contexts cimport MAX_DEVICES


ctypedef struct pb_cuda_kernel:
    PyObject *family                    # owned str
    PyObject *name                      # owned str
    PyObject *launchers[MAX_DEVICES]    # owned: pycuda's bound Function._launch_kernel


cdef pb_cuda_kernel *kernel_named(str family, str name) except NULL
cdef object new_kernel(int mask, pb_kernel kernel)
cdef int launch(pb_call *call, pb_cuda_kernel *kernel, const void *arguments, size_t size,
                int64_t blocks, int threads, size_t shared_bytes) noexcept nogil
cdef int launch_grid(pb_call *call, pb_cuda_kernel *kernel, const void *arguments, size_t size,
                     int64_t blocks_x, int blocks_y, int blocks_z, int threads,
                     size_t shared_bytes) noexcept nogil
cdef int workspace_alloc(pb_call *call, size_t nbytes, void **memory) noexcept nogil
cdef void workspace_free(pb_call *call, void *memory, size_t nbytes) noexcept nogil
cdef int sm_count(pb_call *call) noexcept nogil
