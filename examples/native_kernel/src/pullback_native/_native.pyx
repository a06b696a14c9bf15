# cython: language_level=3, boundscheck=False, cdivision=True
"""The compiled half of the example: memory from malloc and one kernel, ``add``.

Nothing here knows of tensors or gradients, and the kernel needs no interpreter lock.
"""

from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from pullback.abi cimport (
    PB_ABI_VERSION, PB_BACKEND_CAPSULE, PB_BACKEND_HOST, PB_F32, PB_F64, PB_KERNEL_CAPSULE,
    PB_MAX_NDIM, PB_OK, pb_array, pb_backend, pb_call)

F32 = 1 << PB_F32
F64 = 1 << PB_F64

# ---- memory --------------------------------------------------------------------------------------

cdef int64_t in_use = 0


cdef int device_count(void *self) noexcept:
    return 1


cdef void *allocate(void *self, int device, size_t nbytes) noexcept:
    global in_use
    cdef void *data = malloc(nbytes)
    if data != NULL:
        in_use += nbytes
    return data


cdef void release(void *self, int device, void *data, size_t nbytes) noexcept:
    global in_use
    in_use -= nbytes
    free(data)


cdef pb_backend backend
memset(&backend, 0, sizeof(backend))
backend.size = sizeof(backend)
backend.abi_version = PB_ABI_VERSION
backend.flags = PB_BACKEND_HOST         # core may read and write our memory
backend.device_count = device_count
backend.allocate = allocate
backend.release = release

BACKEND = PyCapsule_New(&backend, PB_BACKEND_CAPSULE, NULL)


def bytes_in_use():
    """Return how many bytes tensors hold."""
    return in_use


# ---- kernel --------------------------------------------------------------------------------------

ctypedef fused real:
    float
    double


cdef void add_row(real *out, const real *x, const real *y, int64_t n,
                  const int64_t *step) noexcept nogil:
    """Add along the last dim, where each operand moves by its own stride."""
    cdef int64_t i
    for i in range(n):
        out[i * step[0]] = x[i * step[1]] + y[i * step[2]]


cdef int add(pb_call *call) noexcept nogil:
    """All operands have one shape; broadcasting shows as a stride of 0."""
    cdef pb_array *operands[3]
    cdef char *data[3]
    cdef int64_t step[3]
    cdef int64_t index[PB_MAX_NDIM]
    cdef int64_t size, n = 1, itemsize = 4 if call.out[0].dtype == PB_F32 else 8
    cdef int d, k, outer = call.out[0].ndim - 1
    operands[0], operands[1], operands[2] = call.out[0], call.in_[0], call.in_[1]
    for k in range(3):
        data[k] = <char *>operands[k].data
        step[k] = operands[k].strides[outer] if outer >= 0 and operands[k].ndim else 0
    for d in range(outer + 1):
        index[d] = 0
        if operands[0].shape[d] == 0:
            return PB_OK
    if outer >= 0:
        n = operands[0].shape[outer]
    while True:
        if itemsize == 4:
            add_row[float](<float *>data[0], <float *>data[1], <float *>data[2], n, step)
        else:
            add_row[double](<double *>data[0], <double *>data[1], <double *>data[2], n, step)
        d = outer - 1                   # to the next row, as an odometer goes
        while d >= 0:
            size = operands[0].shape[d]
            index[d] += 1
            for k in range(3):
                if operands[k].ndim:    # a number has no dims
                    data[k] += operands[k].strides[d] * itemsize * (
                        1 - size if index[d] == size else 1)
            if index[d] < size:
                break
            index[d] = 0
            d -= 1
        if d < 0:
            return PB_OK


ADD = PyCapsule_New(<void *>add, PB_KERNEL_CAPSULE, NULL)
