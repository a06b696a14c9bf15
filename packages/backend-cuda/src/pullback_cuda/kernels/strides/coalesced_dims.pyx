"""Dimensions of a call, brought into a good order and described to kernels."""

from libc.stdint cimport int64_t

from pullback_cuda.kernels.common.arrays cimport find_divider
from pullback_cuda.kernels.strides.coalesced_dims cimport *


cdef int64_t positions(const axis_list *axes) noexcept nogil:
    cdef int64_t count = 1
    cdef int d
    for d in range(axes.count):
        count *= axes.size[d]
    return count


cdef void add_axis(axis_list *axes, int64_t size, int64_t stride0, int64_t stride1,
                   int64_t stride2) noexcept nogil:
    """Append an axis outside those that are there; one of size 1 goes nowhere."""
    if size == 1:
        return
    axes.size[axes.count] = size
    axes.strides[axes.count][0] = stride0
    axes.strides[axes.count][1] = stride1
    axes.strides[axes.count][2] = stride2
    axes.count += 1


cdef void swap_axes(axis_list *axes, int first, int second) noexcept nogil:
    cdef int k
    axes.size[first], axes.size[second] = axes.size[second], axes.size[first]
    for k in range(AXES_OPERANDS):
        axes.strides[first][k], axes.strides[second][k] = (
            axes.strides[second][k], axes.strides[first][k])


cdef void sort_axes(axis_list *axes, int operand) noexcept nogil:
    """Put the smallest strides of an operand first; those of 0, which repeat elements, last."""
    cdef int d, place
    for d in range(1, axes.count):
        place = d
        while place and is_nearer(
                axes.strides[place][operand], axes.strides[place - 1][operand]):
            swap_axes(axes, place - 1, place)
            place -= 1


cdef void merge_axes(axis_list *axes) noexcept nogil:
    """Join neighbours that every operand walks with one stride; their order stays."""
    cdef int d, k, last = 0
    if axes.count == 0:
        return
    for d in range(1, axes.count):
        for k in range(axes.operands):
            if axes.strides[d][k] != axes.strides[last][k] * axes.size[last]:
                break
        else:
            axes.size[last] *= axes.size[d]
            continue
        last += 1
        if last != d:
            swap_axes(axes, last, d)
    axes.count = last + 1


cdef void write_axis(pb_axis *out, int64_t size) noexcept nogil:
    """Describe the size of an axis, by which kernels divide."""
    out.size = size
    out.strides[0] = out.strides[1] = out.strides[2] = 0
    find_divider(size, &out.multiplier, &out.shift)


cdef int write_axes(const axis_list *axes, pb_axis *out) noexcept nogil:
    """Describe axes to a kernel, one at least; return how many."""
    cdef int d, k
    if axes.count == 0:
        write_axis(out, 1)
        return 1
    for d in range(axes.count):
        write_axis(&out[d], axes.size[d])
        for k in range(axes.operands):
            out[d].strides[k] = axes.strides[d][k]
    return axes.count


cdef bint is_aligned(const void *data) noexcept nogil:
    """True where 16 bytes can be read at once."""
    return (<size_t>data & 15) == 0
