# What a recorder has of a call.
cdef class Recording:
    cdef list launches, buffers
    cdef list results                   # Result, or any other value
    cdef list begins                    # of each argument: bytes from its memory's begin
    cdef list outers                    # Outer
    cdef list draws                     # (generator, number of blocks)
    cdef list rates                     # Option, of learning rates that are tensors
    cdef bint reads_options

    cdef Recording copy(self)
