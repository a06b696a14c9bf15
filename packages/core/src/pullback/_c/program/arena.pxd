from libc.stdint cimport int64_t


cdef int64_t place_temporaries(
        list buffers, set apart, list launches, list groups) except -1
