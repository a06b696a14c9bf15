cdef list simplified(list launches, list buffers)
