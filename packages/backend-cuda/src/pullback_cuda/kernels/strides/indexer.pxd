# Dims of a call in row-major order, merged where possible, and as kernels read them.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from pullback.abi cimport PB_ARRAY_HOST, PB_MAX_NDIM, pb_array, pb_call


cdef extern from "kernels/strides/indexer.h":
    enum:
        INDEXER_DIMS
    ctypedef struct int_divider:
        int64_t size
        uint32_t multiplier
        uint32_t shift
    ctypedef struct indexer_dims:
        int64_t total
        int32_t ndim
        int32_t narrow
        int_divider dims[INDEXER_DIMS]

cdef enum:
    WALK_OPERANDS = 6
    THREADS = 256           # of a block
    NARROW = 0x7FFFFFFF     # numbers below it can be divided fast

# Dims, outermost first, and the strides of each operand, in elements.
ctypedef struct walk:
    int operands
    int ndim
    int64_t shape[PB_MAX_NDIM]
    int64_t steps[WALK_OPERANDS][PB_MAX_NDIM]


cdef void add_dim(walk *dims, int64_t length, const int64_t *steps) noexcept nogil
cdef void merge_dims(walk *dims, int first) noexcept nogil
cdef void make_divider(int_divider *divider, int64_t size) noexcept nogil
cdef void write_dims(const walk *dims, int first, int end, indexer_dims *out) noexcept nogil
cdef void write_steps(const walk *dims, int first, int end, int operand,
                      int64_t *out) noexcept nogil
cdef int64_t blocks_for(pb_call *call, int64_t items, int64_t each) noexcept nogil


cdef inline void start_walk(walk *dims, int operands) noexcept nogil:
    dims.operands = operands
    dims.ndim = 0


cdef inline int64_t step_of(const pb_array *array, int dim) noexcept nogil:
    """Return the stride of a dim, 0 where it has one element."""
    return 0 if array.shape[dim] == 1 else array.strides[dim]


cdef inline int64_t volume(const walk *dims, int first, int end) noexcept nogil:
    """Return how many elements some of the dims have."""
    cdef int64_t count = 1
    cdef int d
    for d in range(first, end):
        count *= dims.shape[d]
    return count
