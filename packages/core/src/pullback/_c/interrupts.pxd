from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint32_t

cdef bint interrupts_begin() noexcept
cdef bint interrupts_end(bint before) noexcept
cdef bint interrupts_left_writes() noexcept


cdef inline int poll_signals(uint32_t *turns) except -1:
    """Let signal handlers run now and then, from a loop of short turns that holds the lock."""
    turns[0] += 1
    if turns[0] & 63 == 0:
        PyErr_CheckSignals()
    return 0
