# Copies of strided elements into contiguous buffers and out of them, and transpositions.
from libc.stdint cimport int64_t

# Copy n elements; strides count elements.
ctypedef void (*strided_copy)(
    char *out, int64_t out_stride, const char *data, int64_t stride, int64_t n) noexcept nogil
# out[i, j] = data[j, i]; steps count elements. If it streams, the output may pass by the caches.
ctypedef void (*transposition)(
    char *out, int64_t out_step, const char *data, int64_t step, int64_t rows,
    int64_t columns, int streams) noexcept nogil


# By the logarithm of an element's size.
ctypedef struct strided_table:
    strided_copy copy[5]
    transposition transpose[5]
