# Dimensions of a call, brought into a good order and described to kernels.
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pullback.abi cimport PB_MAX_NDIM, pb_array


cdef extern from "kernels/strides/coalesced_dims.h":
    ctypedef struct pb_axis:
        int64_t size
        int64_t strides[3]
        uint32_t multiplier
        uint32_t shift


cdef enum:
    AXES_OPERANDS = 3
    MOST_NUMBERED = 1 << 30     # positions whose numbers kernels can be sure to divide
    FULL = 2048                 # threads that keep a multiprocessor busy
    WARP = 5                    # 2^5 threads
    BLOCK = 8                   # 2^8 threads, the most of a block


# Innermost first. Strides count elements.
ctypedef struct axis_list:
    int operands
    int count
    int64_t size[PB_MAX_NDIM]
    int64_t strides[PB_MAX_NDIM][AXES_OPERANDS]


cdef int64_t positions(const axis_list *axes) noexcept nogil
cdef void add_axis(axis_list *axes, int64_t size, int64_t stride0, int64_t stride1,
                   int64_t stride2) noexcept nogil
cdef void sort_axes(axis_list *axes, int operand) noexcept nogil
cdef void merge_axes(axis_list *axes) noexcept nogil
cdef void write_axis(pb_axis *out, int64_t size) noexcept nogil
cdef int write_axes(const axis_list *axes, pb_axis *out) noexcept nogil
cdef bint is_aligned(const void *data) noexcept nogil


cdef inline void start_axes(axis_list *axes, int operands) noexcept nogil:
    axes.operands = operands
    axes.count = 0


cdef inline bint is_nearer(int64_t stride, int64_t other) noexcept nogil:
    """True if neighbours lie closer at a stride than at another; those at 0 are no neighbours."""
    stride = -stride if stride < 0 else stride
    other = -other if other < 0 else other
    return <uint64_t>stride - 1 < <uint64_t>other - 1
