# The driver of elementwise kernels: it runs an inner loop over operands of any dimensions.
#
# An inner loop sees operand 0, the output, then the inputs: pointers, strides in elements and
# a length of at least one. It returns 0, or an error code that ends the call.
from cpython.pycapsule cimport PyCapsule_SetContext
from libc.stdint cimport int64_t

from pullback_cpu.kernels.common.kernel cimport (
    PB_ARRAY_HOST, PB_OK, fail, fail_dtype, new_kernel, pb_array, pb_call, pb_kernel, unlikely)

ctypedef int (*inner_loop)(char **data, const int64_t *strides, int64_t n) noexcept nogil

cdef enum:
    MAX_OPERANDS = 5
    SHORT = 256  # elements up to which a loop is run without a closer look


cdef int run_strided(pb_call *call, inner_loop loop, int nin, bint moves) noexcept nogil
cdef int run_line(
    pb_call *call, inner_loop loop, int nin, bint moves, char **data, const int64_t *strides,
    int64_t n) noexcept nogil


cdef inline object new_elementwise(int mask, pb_kernel kernel, void *loops):
    """As new_kernel, of a kernel that only calls `run_elementwise`, with a loop of a table."""
    found = new_kernel(mask, kernel)
    PyCapsule_SetContext(found[1], loops)
    return found


cdef inline int end_loop(pb_call *call, int error) noexcept nogil:
    # The only thing that can go wrong element by element is an integer division.
    if unlikely(error != PB_OK):
        return fail(call, error, b"ZeroDivisionError")
    return PB_OK


cdef inline int run_elementwise(
        pb_call *call, inner_loop loop, int nin, bint moves=False) noexcept nogil:
    """Run ``loop`` over the output and the ``nin`` inputs of an elementwise call.

    A loop that only ``moves`` elements takes strided ones too, without buffers.
    """
    cdef pb_array *array = call.out[0]
    cdef char *data[MAX_OPERANDS]
    cdef int64_t strides[MAX_OPERANDS]
    cdef int64_t n = 1
    cdef int k, ndim = array.ndim
    if unlikely(loop == NULL):
        return fail_dtype(call)
    if ndim > 1:
        return end_loop(call, run_strided(call, loop, nin, moves))
    data[0] = <char *>array.data
    strides[0] = 1
    if ndim:
        n = array.shape[0]
        if unlikely(n == 0):
            return PB_OK
        strides[0] = array.strides[0]
    for k in range(nin):
        array = call.in_[k]
        data[k + 1] = <char *>array.data
        if array.flags & PB_ARRAY_HOST:
            strides[k + 1] = 0
        else:
            strides[k + 1] = array.strides[0] if ndim else 1
    if n > SHORT:
        return end_loop(call, run_line(call, loop, nin, moves, data, strides, n))
    return end_loop(call, loop(data, strides, n))
