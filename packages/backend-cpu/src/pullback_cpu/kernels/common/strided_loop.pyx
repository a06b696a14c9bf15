# Loops over several dimensions of strided operands: the order of the dimensions.
from pullback_cpu.kernels.common.strided_loop cimport *


cdef void swap_dimensions(strided_loop *dims, int first, int second) noexcept nogil:
    cdef int k
    dims.shape[first], dims.shape[second] = dims.shape[second], dims.shape[first]
    for k in range(dims.operands):
        dims.steps[first][k], dims.steps[second][k] = dims.steps[second][k], dims.steps[first][k]


cdef void sort_dimensions(strided_loop *dims, int operand) noexcept nogil:
    """Put the dimensions in the order of one operand's steps, smallest first."""
    cdef int d, index
    for d in range(1, dims.ndim):
        index = d
        while (index and magnitude(dims.steps[index - 1][operand])
                > magnitude(dims.steps[index][operand])):
            swap_dimensions(dims, index - 1, index)
            index -= 1


cdef void merge_dimensions(strided_loop *dims) noexcept nogil:
    """Join neighbours that every operand walks with one step; their order stays."""
    cdef int d, k, last = 0
    if dims.ndim == 0:
        return
    for d in range(1, dims.ndim):
        for k in range(dims.operands):
            if dims.steps[d][k] != dims.steps[last][k] * dims.shape[last]:
                break
        else:
            dims.shape[last] *= dims.shape[d]
            continue
        last += 1
        if last != d:
            swap_dimensions(dims, last, d)
    dims.ndim = last + 1
