cdef list simplified(list launches, list buffers)
cdef int first_write(list launches, list buffers) except -1
cdef int number_uses(list launches, list buffers) except -1
cdef list decided_first(list launches, list buffers)
