# Stable sort of rows of pairs: unsigned keys, and the positions that they come from.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from pullback.abi cimport pb_call


cdef extern from "kernels/sorting/radix_sort.h":
    enum:
        RADIX_DIGITS
        RADIX_TILE_4
        RADIX_TILE_8
    ctypedef struct radix_arguments:
        void *keys[2]
        void *order[2]
        uint32_t *counts
        uint64_t *starts
        uint64_t *totals
        const uint32_t *differ
        int64_t n
        int64_t rows
        int64_t chunk
        int64_t blocks
        int32_t digit


cdef int sort_pairs(pb_call *call, radix_arguments *args, int key_bytes, int order_bytes,
                    int passes) noexcept nogil
