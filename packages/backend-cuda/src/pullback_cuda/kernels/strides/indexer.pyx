"""Dims of a call in row-major order, merged where possible, and as kernels read them."""

from libc.stdint cimport int64_t

from pullback.abi cimport pb_call
from pullback_cuda.kernels.common.arrays cimport find_divider
from pullback_cuda.kernels.common.launch cimport sm_count

cdef enum:
    BLOCKS = 16     # for each multiprocessor, at most: threads loop over the elements


cdef void add_dim(walk *dims, int64_t length, const int64_t *steps) noexcept nogil:
    """Append a dim as the innermost one; length 1 is left out."""
    cdef int k
    if length == 1:
        return
    dims.shape[dims.ndim] = length
    for k in range(dims.operands):
        dims.steps[k][dims.ndim] = steps[k]
    dims.ndim += 1


cdef void merge_dims(walk *dims, int first) noexcept nogil:
    """Merge neighbouring dims from ``first`` on that are one dim for every operand."""
    cdef int d, k, last = first
    cdef bint joined
    for d in range(first + 1, dims.ndim):
        joined = True
        for k in range(dims.operands):
            if dims.steps[k][last] != dims.steps[k][d] * dims.shape[d]:
                joined = False
                break
        if joined:
            dims.shape[last] *= dims.shape[d]
        else:
            last += 1
            dims.shape[last] = dims.shape[d]
        for k in range(dims.operands):
            dims.steps[k][last] = dims.steps[k][d]
    if dims.ndim > first:
        dims.ndim = last + 1


cdef void make_divider(int_divider *divider, int64_t size) noexcept nogil:
    """Prepare divisions by a size."""
    divider.size = size
    find_divider(size, &divider.multiplier, &divider.shift)


cdef void write_dims(const walk *dims, int first, int end, indexer_dims *out) noexcept nogil:
    """Write dims from ``first`` to before ``end``, at most INDEXER_DIMS, for a kernel."""
    cdef int d
    out.total = volume(dims, first, end)
    out.narrow = out.total < <int64_t>NARROW
    out.ndim = max(end - first, 1)
    make_divider(&out.dims[0], 1)
    for d in range(first, end):
        make_divider(&out.dims[d - first], dims.shape[d])


cdef void write_steps(const walk *dims, int first, int end, int operand,
                      int64_t *out) noexcept nogil:
    """Write the strides of an operand along these dims."""
    cdef int d
    out[0] = 0
    for d in range(first, end):
        out[d - first] = dims.steps[operand][d]


cdef int64_t blocks_for(pb_call *call, int64_t items, int64_t each) noexcept nogil:
    """Return how many blocks to launch for so many items, ``each`` of them a block in one step."""
    cdef int64_t most = <int64_t>BLOCKS * sm_count(call)
    return max(<int64_t>1, min(most, (items + each - 1) // each))
