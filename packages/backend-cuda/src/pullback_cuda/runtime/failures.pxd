# Failures of a call: a code for the core, and a message.
from pullback.abi cimport pb_call


cdef int fail(pb_call *call, int code, const char *text) noexcept nogil
cdef int fail_with(char *message, object error) noexcept
cdef void *failure_record(pb_call *call) noexcept nogil
cdef int failure_check(pb_call *call) noexcept nogil
cdef int take_failure(int number, char *message) noexcept nogil
