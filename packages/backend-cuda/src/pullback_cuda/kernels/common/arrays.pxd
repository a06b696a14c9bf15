# Sizes of elements and arrays, and division by a size, for the host side of kernels.
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pullback.abi cimport pb_array

cdef extern from *:
    """
    static const int pb_item_sizes[] = {1, 1, 1, 2, 4, 8, 2, 2,
                                        4, 8, 8, 16, 2, 4, 8, 4};
    """
    const int *item_sizes "pb_item_sizes"   # in bytes, by dtype


cdef inline int64_t count_elements(const pb_array *array) noexcept nogil:
    cdef int64_t count = 1
    cdef int d
    for d in range(array.ndim):
        count *= array.shape[d]
    return count


cdef inline int bits_for(int64_t count) noexcept nogil:
    """Return the smallest power of two that ``count`` does not exceed, as an exponent."""
    cdef int bits = 0
    while bits < 62 and (<int64_t>1 << bits) < count:
        bits += 1
    return bits


cdef inline void find_divider(int64_t size, uint32_t *multiplier, uint32_t *shift) noexcept nogil:
    """Prepare divisions by a size: (high half of n * multiplier, plus n) >> shift, for n < 2^31.

    For sizes above 2^31 - 1, where n is smaller than the size, and for size 0, the result is 0.
    """
    # Granlund and Montgomery, "Division by invariant integers using multiplication", 1994, with a
    # multiplier that lacks its leading bit.
    if size < 1 or size > 0x7FFFFFFF:
        multiplier[0] = 0
        shift[0] = 31
        return
    shift[0] = bits_for(size)
    multiplier[0] = <uint32_t>(
        (((<uint64_t>1 << shift[0]) - <uint64_t>size) << 32) // <uint64_t>size + 1)
