# Loops over several dimensions, shared by all kernels that need more than one.
from libc.stdint cimport int64_t

from pullback_cpu.kernels.common.kernel cimport PB_MAX_NDIM, item_size, pb_array, PB_ARRAY_HOST

cdef enum:
    NEST_OPERANDS = 5


# Dimensions, innermost first, and how each of a few operands moves along them. Steps count bytes.
ctypedef struct nested_loop:
    int operands
    int ndim
    int64_t shape[PB_MAX_NDIM]
    int64_t steps[PB_MAX_NDIM][NEST_OPERANDS]


cdef void sort_dimensions(nested_loop *nest, int operand) noexcept nogil
cdef void merge_dimensions(nested_loop *nest) noexcept nogil
cdef void swap_dimensions(nested_loop *nest, int first, int second) noexcept nogil


cdef inline int64_t magnitude(int64_t step) noexcept nogil:
    return -step if step < 0 else step


cdef inline int64_t step_of(const pb_array *array, int dim) noexcept nogil:
    """Return how many bytes apart neighbours along ``dim`` are; a host scalar stays in place."""
    if array.flags & PB_ARRAY_HOST or array.shape[dim] == 1:
        return 0
    return array.strides[dim] * item_size(array.dtype)


cdef inline void start_nest(nested_loop *nest, int operands) noexcept nogil:
    nest.operands = operands
    nest.ndim = 0


cdef inline void add_dimension(
        nested_loop *nest, int64_t length, int64_t step0, int64_t step1, int64_t step2,
        int64_t step3) noexcept nogil:
    """Append a dimension outside those that are there; one of length 1 needs no loop.

    A fifth operand is a number: it stays where it is.
    """
    if length == 1:
        return
    nest.shape[nest.ndim] = length
    nest.steps[nest.ndim][0] = step0
    nest.steps[nest.ndim][1] = step1
    nest.steps[nest.ndim][2] = step2
    nest.steps[nest.ndim][3] = step3
    nest.steps[nest.ndim][4] = 0
    nest.ndim += 1


cdef inline void start_position(nested_loop *nest, int64_t *position) noexcept nogil:
    cdef int d
    for d in range(nest.ndim):
        position[d] = 0


cdef inline bint advance(
        nested_loop *nest, int first, int64_t *position, char **data) noexcept nogil:
    """Step to the next position of the dimensions from ``first`` on; false after the last one.

    After the last one ``data`` points to the first position again.
    """
    cdef int k, d = first
    while d < nest.ndim:
        position[d] += 1
        if position[d] < nest.shape[d]:
            for k in range(nest.operands):
                data[k] += nest.steps[d][k]
            return True
        position[d] = 0
        for k in range(nest.operands):
            data[k] -= nest.steps[d][k] * (nest.shape[d] - 1)
        d += 1
    return False


cdef inline void move_to(
        nested_loop *nest, int first, int64_t position, char **data) noexcept nogil:
    """Step to a position of the dimensions from ``first`` on, counted as ``advance`` goes."""
    cdef int d, k
    cdef int64_t place
    for d in range(first, nest.ndim):
        if position == 0:
            return
        place = position % nest.shape[d]
        position //= nest.shape[d]
        for k in range(nest.operands):
            data[k] += place * nest.steps[d][k]


cdef inline void go_to(
        nested_loop *nest, int first, int64_t index, int64_t *position, char **data) noexcept nogil:
    """Step there as ``move_to``, and set the position that ``advance`` goes on from."""
    cdef int d
    start_position(nest, position)
    move_to(nest, first, index, data)
    for d in range(first, nest.ndim):
        if index == 0:
            return
        position[d] = index % nest.shape[d]
        index //= nest.shape[d]
