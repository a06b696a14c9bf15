# The threads that share the work of one kernel call.
from libc.stdint cimport int64_t
from libc.string cimport memset

cdef enum:
    SPAN = 1 << 18  # elements between two polls for an interrupt

# The body of a parallel loop, for the elements, rows or blocks from ``first`` up to ``last``.
ctypedef void (*parallel_body)(void *context, int64_t first, int64_t last) noexcept nogil


cdef bint parallel_for(int64_t n, int64_t grain, parallel_body body, void *context) noexcept nogil
cdef bint stopping() noexcept nogil
cdef void hold_threads() noexcept nogil
cdef void release_threads() noexcept nogil
cdef int thread_count() noexcept nogil


cdef inline bint clear(void *data, int64_t nbytes) noexcept nogil:
    """Set memory to zero; true if the call shall end. Its pages may be new."""
    cdef int64_t start = 0
    while nbytes - start > 16 * SPAN:
        memset(<char *>data + start, 0, 16 * SPAN)
        start += 16 * SPAN
        if stopping():
            return True
    memset(<char *>data + start, 0, nbytes - start)
    return False
