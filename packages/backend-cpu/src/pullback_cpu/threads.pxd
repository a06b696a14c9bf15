# The threads that share the work of one kernel call.
from libc.stdint cimport int64_t

cdef enum:
    SPAN = 1 << 18  # elements that are worked on between two questions whether to go on

# What is done for the elements, rows or blocks from ``first`` up to ``last``.
ctypedef void (*parallel_body)(void *context, int64_t first, int64_t last) noexcept nogil


cdef bint parallel_for(int64_t n, int64_t grain, parallel_body body, void *context) noexcept nogil
cdef bint stopping() noexcept nogil
cdef int thread_count() noexcept nogil
