# Elements that index arrays select, for gather.pyx and index.pyx.
from libc.stdint cimport int32_t, int64_t

from pullback.abi cimport PB_MAX_OPERANDS, pb_array, pb_call
from pullback_cuda.kernels.strides.indexer cimport INDEXER_DIMS, indexer_dims, int_divider, walk


cdef extern from "kernels/indexing/indexed.h":
    enum:
        INDEX_ARRAYS
        RUN_CHUNK
        REDUCE_SUM
        REDUCE_LAST
    ctypedef struct index_arrays:
        int32_t count
        int32_t negative
        int32_t folded
        int32_t dim[INDEX_ARRAYS]
        const void *index[INDEX_ARRAYS]
        int64_t length[INDEX_ARRAYS]
        int64_t step[INDEX_ARRAYS]
        int64_t index_steps[INDEX_ARRAYS][INDEXER_DIMS]
        void *failure
    ctypedef struct take_arguments:
        indexer_dims where
        int64_t near_steps[INDEXER_DIMS]
        int64_t far_steps[INDEXER_DIMS]
        index_arrays by
        void *near_data
        void *far_data
    ctypedef struct keys_arguments:
        indexer_dims where
        int64_t far_steps[INDEXER_DIMS]
        index_arrays by
        int64_t base
        int64_t nowhere
        void *keys
        void *winner
        int32_t adds
    ctypedef struct clear_arguments:
        void *data
        int64_t count
    ctypedef struct put_arguments:
        int64_t count
        int64_t nowhere
        int64_t scale
        int64_t base
        const void *keys
        const void *order
        const void *winner
        void *near_data
        void *far_data
        void *partial
        int32_t wide
        int32_t mode
        int32_t stage
        int32_t narrow
        indexer_dims where
        int64_t near_steps[INDEXER_DIMS]
        indexer_dims row
        int_divider row_total
        int64_t row_near[INDEXER_DIMS]
        int64_t row_far[INDEXER_DIMS]

cdef enum:
    # Operands of the positions; from the third on the index arrays.
    NEAR = 0
    FAR = 1
    FIRST_INDEX = 2
    POSITIONS = 1024    # that a block looks up in one step

# The positions of index arrays, and the rows of elements that each of them selects.
ctypedef struct selection:
    int count               # of index arrays
    int negative            # whether indices count from the end, too
    pb_array **indices
    int dim                 # the far dim that the first of them selects along; the others follow
    pb_array *near
    pb_array *far
    walk positions          # near, far (without the indexed dims), the first index arrays
    walk row                # near, far
    int64_t size            # bytes of an element
    void *folded            # offsets that more index arrays than fit add up to, or NULL
    int64_t folded_bytes


cdef int select_dim(pb_call *call, selection *chosen, pb_array *index, pb_array *near,
                    pb_array *far, int dim) noexcept nogil
cdef int select_first(pb_call *call, selection *chosen, pb_array **indices, int count,
                      pb_array *near, pb_array *far) noexcept nogil
cdef int64_t far_length(const selection *chosen, int k) noexcept nogil
cdef int64_t far_step(const selection *chosen, int k) noexcept nogil
cdef int fold_indices(pb_call *call, selection *chosen, int64_t scale) noexcept nogil
cdef void unfold(pb_call *call, selection *chosen) noexcept nogil
cdef void write_arrays(pb_call *call, const selection *chosen, const walk *dims, int first,
                       int64_t scale, index_arrays *by) noexcept nogil
