from libc.stdint cimport uint16_t

from pullback._c.base.types cimport pb_storage


# A stream that was current has a number, from 1 on; 0 means no stream.
ctypedef struct pb_stream:
    int device_type
    int device_index
    void *handle


cdef pb_stream *stream_of(uint16_t number) noexcept
cdef uint16_t stream_now(int device_type, int device_index) noexcept
cdef uint16_t stream_default(int device_type, int device_index) except? 0
cdef uint16_t stream_set(uint16_t number) except? 0
cdef list streams_here()
cdef int stream_wait(uint16_t waiter, uint16_t awaited) except -1
cdef int stream_use(pb_storage *storage, uint16_t number) except -1
cdef int memory_use(pb_storage *storage, void *handle) except -1
