from libc.stdint cimport int64_t, uint32_t

from pullback._c.base.types cimport pb_layout, pb_storage
from pullback._c.graph.tensor cimport Tensor


# A tensor that a program returns; buffer -1: the argument with the number `offset`, -2: one without
# memory.
cdef class Result:
    cdef int buffer
    cdef int device_type, device_index
    cdef pb_layout *layout              # owned
    cdef int64_t offset
    cdef int dtype
    cdef uint32_t flags


# A storage that was there before: how often the program writes to it.
cdef class Outer:
    cdef pb_storage *storage            # owned; NULL: that of an argument
    cdef int input
    cdef uint32_t writes


cdef class Program:
    cdef public str name                # in profiles
    cdef readonly list launches
    cdef readonly list buffers
    cdef readonly list results          # Result, the number of an argument, or any other value
    cdef readonly list outers           # Outer: storages whose versions move
    cdef readonly list draws            # (generator, number of blocks)
    # (number of a launch, number of its parameter, Option); -1: the option has a tensor
    cdef readonly list options
    cdef list arenas                    # of each device with temporaries: type, index, bytes
    cdef readonly int64_t temporaries   # bytes of all temporaries, one by one
    cdef readonly bint writes           # to arguments or outer memory
    cdef int first_write                # the first launch that does
    cdef list begins                    # of each argument: its tensor's offset in bytes then
    cdef list moving                    # buffers that may have another address in each run
    cdef list idle                      # instances that no thread runs
    cdef readonly list groups           # Group, in order

    cpdef list run(self, list inputs, list drawn=*)
    cpdef bint stale(self) noexcept
    cdef int launches_at(self, int number)


cdef Result result_of(Tensor tensor, int buffer)
cdef int fill(pb_storage *storage, pb_storage *source) except -1
