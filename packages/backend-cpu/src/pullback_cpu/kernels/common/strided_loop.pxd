# Loops over several dimensions of strided operands: the struct, and steps from position to
# position. All kernels that need more than one dimension use them.
from libc.stdint cimport int64_t

from pullback_cpu.kernels.common.kernel cimport PB_MAX_NDIM, item_size, pb_array, PB_ARRAY_HOST

cdef enum:
    LOOP_OPERANDS = 5


# Dimensions, innermost first, and how each of a few operands moves along them. Steps count bytes.
ctypedef struct strided_loop:
    int operands
    int ndim
    int64_t shape[PB_MAX_NDIM]
    int64_t steps[PB_MAX_NDIM][LOOP_OPERANDS]


cdef void sort_dimensions(strided_loop *dims, int operand) noexcept nogil
cdef void merge_dimensions(strided_loop *dims) noexcept nogil
cdef void swap_dimensions(strided_loop *dims, int first, int second) noexcept nogil


cdef inline int64_t magnitude(int64_t step) noexcept nogil:
    return -step if step < 0 else step


cdef inline int64_t step_of(const pb_array *array, int dim) noexcept nogil:
    """Return how many bytes apart neighbours along ``dim`` are; a host scalar stays in place."""
    if array.flags & PB_ARRAY_HOST or array.shape[dim] == 1:
        return 0
    return array.strides[dim] * item_size(array.dtype)


cdef inline void init_dims(strided_loop *dims, int operands) noexcept nogil:
    dims.operands = operands
    dims.ndim = 0


cdef inline void add_dimension(
        strided_loop *dims, int64_t length, int64_t step0, int64_t step1, int64_t step2,
        int64_t step3) noexcept nogil:
    """Append a dimension outside those that are there; one of length 1 needs no loop.

    A fifth operand is a number: it stays where it is.
    """
    if length == 1:
        return
    dims.shape[dims.ndim] = length
    dims.steps[dims.ndim][0] = step0
    dims.steps[dims.ndim][1] = step1
    dims.steps[dims.ndim][2] = step2
    dims.steps[dims.ndim][3] = step3
    dims.steps[dims.ndim][4] = 0
    dims.ndim += 1


cdef inline void start_position(strided_loop *dims, int64_t *position) noexcept nogil:
    cdef int d
    for d in range(dims.ndim):
        position[d] = 0


cdef inline bint advance(
        strided_loop *dims, int first, int64_t *position, char **data) noexcept nogil:
    """Step to the next position of the dimensions from ``first`` on; false after the last one.

    After the last one ``data`` points to the first position again.
    """
    cdef int k, d = first
    while d < dims.ndim:
        position[d] += 1
        if position[d] < dims.shape[d]:
            for k in range(dims.operands):
                data[k] += dims.steps[d][k]
            return True
        position[d] = 0
        for k in range(dims.operands):
            data[k] -= dims.steps[d][k] * (dims.shape[d] - 1)
        d += 1
    return False


cdef inline void move_to(
        strided_loop *dims, int first, int64_t position, char **data) noexcept nogil:
    """Step to a position of the dimensions from ``first`` on, counted as ``advance`` goes."""
    cdef int d, k
    cdef int64_t index
    for d in range(first, dims.ndim):
        if position == 0:
            return
        index = position % dims.shape[d]
        position //= dims.shape[d]
        for k in range(dims.operands):
            data[k] += index * dims.steps[d][k]


cdef inline void go_to(
        strided_loop *dims, int first, int64_t index, int64_t *position,
        char **data) noexcept nogil:
    """Step there as ``move_to``, and set the position that ``advance`` goes on from."""
    cdef int d
    start_position(dims, position)
    move_to(dims, first, index, data)
    for d in range(first, dims.ndim):
        if index == 0:
            return
        position[d] = index % dims.shape[d]
        index //= dims.shape[d]
