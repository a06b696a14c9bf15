from libc.stdint cimport int32_t

from pullback.abi cimport pb_backend, pb_part


cdef enum:
    SMALL_WORK = 16384          # elements below which a host kernel is called with the lock held


# Launches of one instance of a program, which an executor of their backend runs.
cdef class Part:
    cdef readonly int first, count      # launches
    cdef readonly bint host
    cdef pb_backend *backend
    cdef void *executor                 # owned
    cdef pb_part part
    cdef list launches                  # that `part` points to
    cdef int device

    cdef int run(self, int32_t *begun, char *message) noexcept


cdef list find_parts(list launches, list groups, list buffers)
