# Sorts of keys, for other kernels.
from libc.stdint cimport int32_t, int64_t, uint64_t

from pullback.abi cimport pb_array, pb_call


cdef extern from "kernels/sorting/sort_keys.h":
    enum:
        SORT_UNSIGNED
        SORT_SIGNED
        SORT_FLOATING
    ctypedef struct sort_keys:
        int32_t bytes
        int32_t kind
        uint64_t infinity
        uint64_t flip

# Keys to sort: unsigned numbers of 4 or 8 bytes, and the positions that they come from.
ctypedef struct key_sort:
    bint wide           # 8 bytes, of keys and positions
    int64_t count
    int64_t most        # the largest key
    void *keys[2]       # given in the first; both have room for all
    void *order[2]
    int result          # which buffers hold the sorted ones


cdef void describe_keys(int dtype, bint descending, sort_keys *how) noexcept nogil
cdef int sort_numbers(pb_call *call, key_sort *task) noexcept nogil
