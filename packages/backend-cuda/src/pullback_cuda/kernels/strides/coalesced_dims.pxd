# Dims of a call, sorted by stride, coalesced and written as kernels read them.
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pullback.abi cimport PB_MAX_NDIM, pb_array
from pullback_cuda.kernels.common.arrays cimport bits_for


cdef extern from "kernels/strides/coalesced_dims.h":
    ctypedef struct pb_dim:
        int64_t size
        int64_t strides[3]
        uint32_t multiplier
        uint32_t shift


cdef enum:
    DIM_OPERANDS = 3
    MOST_NUMBERED = 1 << 30     # positions whose numbers kernels can be sure to divide
    FULL = 2048                 # threads that keep a multiprocessor busy
    WARP = 5                    # 2^5 threads
    BLOCK = 8                   # 2^8 threads, the most of a block


# Innermost first. Strides count elements.
ctypedef struct dim_list:
    int operands
    int count
    int64_t size[PB_MAX_NDIM]
    int64_t strides[PB_MAX_NDIM][DIM_OPERANDS]


cdef int64_t count_positions(const dim_list *dims) noexcept nogil
cdef void append_dim(dim_list *dims, int64_t size, int64_t stride0, int64_t stride1,
                     int64_t stride2) noexcept nogil
cdef void sort_dims(dim_list *dims, int operand) noexcept nogil
cdef void coalesce_dims(dim_list *dims) noexcept nogil
cdef void describe_dim(pb_dim *out, int64_t size) noexcept nogil
cdef int describe_dims(const dim_list *dims, pb_dim *out) noexcept nogil
cdef bint is_aligned(const void *data) noexcept nogil


cdef inline void start_dims(dim_list *dims, int operands) noexcept nogil:
    dims.operands = operands
    dims.count = 0


cdef inline int choose_group_bits(int64_t lines, int thread_bits, int most) noexcept nogil:
    """Return how many groups a block has, as a power of two.

    At most one for each line, at most 2^most threads in all, and at least a warp.
    """
    return max(min(bits_for(lines), most - thread_bits), WARP - thread_bits, 0)


cdef inline bint is_nearer(int64_t stride, int64_t other) noexcept nogil:
    """True if a stride is smaller than another; stride 0 counts as the largest."""
    stride = -stride if stride < 0 else stride
    other = -other if other < 0 else other
    return <uint64_t>stride - 1 < <uint64_t>other - 1
