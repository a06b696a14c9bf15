# Loops over several dimensions: bringing the dimensions into a good order.
from pullback_cpu.kernels.common.strided_loop cimport *


cdef void swap_dimensions(nested_loop *nest, int first, int second) noexcept nogil:
    cdef int k
    nest.shape[first], nest.shape[second] = nest.shape[second], nest.shape[first]
    for k in range(nest.operands):
        nest.steps[first][k], nest.steps[second][k] = nest.steps[second][k], nest.steps[first][k]


cdef void sort_dimensions(nested_loop *nest, int operand) noexcept nogil:
    """Put the dimensions in the order of one operand's steps, smallest first."""
    cdef int d, place
    for d in range(1, nest.ndim):
        place = d
        while (place and magnitude(nest.steps[place - 1][operand])
                > magnitude(nest.steps[place][operand])):
            swap_dimensions(nest, place - 1, place)
            place -= 1


cdef void merge_dimensions(nested_loop *nest) noexcept nogil:
    """Join neighbours that every operand walks with one step; their order stays."""
    cdef int d, k, last = 0
    if nest.ndim == 0:
        return
    for d in range(1, nest.ndim):
        for k in range(nest.operands):
            if nest.steps[d][k] != nest.steps[last][k] * nest.shape[last]:
                break
        else:
            nest.shape[last] *= nest.shape[d]
            continue
        last += 1
        if last != d:
            swap_dimensions(nest, last, d)
    nest.ndim = last + 1
