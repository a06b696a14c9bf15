"""Dims of a call, sorted by stride, coalesced and written as kernels read them."""

from libc.stdint cimport int64_t

from pullback_cuda.kernels.common.arrays cimport find_divider
from pullback_cuda.kernels.strides.coalesced_dims cimport *


cdef int64_t count_positions(const dim_list *dims) noexcept nogil:
    cdef int64_t count = 1
    cdef int d
    for d in range(dims.count):
        count *= dims.size[d]
    return count


cdef void append_dim(dim_list *dims, int64_t size, int64_t stride0, int64_t stride1,
                     int64_t stride2) noexcept nogil:
    """Append a dim as the outermost one; size 1 is left out."""
    if size == 1:
        return
    dims.size[dims.count] = size
    dims.strides[dims.count][0] = stride0
    dims.strides[dims.count][1] = stride1
    dims.strides[dims.count][2] = stride2
    dims.count += 1


cdef void swap_dims(dim_list *dims, int first, int second) noexcept nogil:
    cdef int k
    dims.size[first], dims.size[second] = dims.size[second], dims.size[first]
    for k in range(DIM_OPERANDS):
        dims.strides[first][k], dims.strides[second][k] = (
            dims.strides[second][k], dims.strides[first][k])


cdef void sort_dims(dim_list *dims, int operand) noexcept nogil:
    """Put the smallest strides of an operand first; those of 0, which repeat elements, last."""
    cdef int d, e
    for d in range(1, dims.count):
        e = d
        while e and is_nearer(
                dims.strides[e][operand], dims.strides[e - 1][operand]):
            swap_dims(dims, e - 1, e)
            e -= 1


cdef void coalesce_dims(dim_list *dims) noexcept nogil:
    """Merge neighbouring dims that are one dim for every operand; the order stays."""
    cdef int d, k, last = 0
    if dims.count == 0:
        return
    for d in range(1, dims.count):
        for k in range(dims.operands):
            if dims.strides[d][k] != dims.strides[last][k] * dims.size[last]:
                break
        else:
            dims.size[last] *= dims.size[d]
            continue
        last += 1
        if last != d:
            swap_dims(dims, last, d)
    dims.count = last + 1


cdef void describe_dim(pb_dim *out, int64_t size) noexcept nogil:
    """Write the size of a dim, with what kernels need to divide by it."""
    out.size = size
    out.strides[0] = out.strides[1] = out.strides[2] = 0
    find_divider(size, &out.multiplier, &out.shift)


cdef int describe_dims(const dim_list *dims, pb_dim *out) noexcept nogil:
    """Write dims for a kernel, one at least; return how many."""
    cdef int d, k
    if dims.count == 0:
        describe_dim(out, 1)
        return 1
    for d in range(dims.count):
        describe_dim(&out[d], dims.size[d])
        for k in range(dims.operands):
            out[d].strides[k] = dims.strides[d][k]
    return dims.count


cdef bint is_aligned(const void *data) noexcept nogil:
    """True where 16 bytes can be read with one load."""
    return (<size_t>data & 15) == 0
