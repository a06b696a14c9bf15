from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint32_t
from libc.string cimport memcpy

cdef bint interrupts_begin() noexcept
cdef bint interrupts_end(bint before) noexcept
cdef bint interrupts_left_writes() noexcept


cdef inline int poll_signals(uint32_t *turns) except -1:
    """Run signal handlers every so many iterations of a loop that holds the interpreter lock."""
    turns[0] += 1
    if turns[0] & 63 == 0:
        PyErr_CheckSignals()
    return 0


cdef inline int copy_polled(char *target, const char *source, size_t nbytes) except -1:
    """Copy memory in pieces; a signal handler that raises ends the copy between two of them."""
    cdef size_t some
    while nbytes:
        some = min(nbytes, <size_t>1 << 24)
        memcpy(target, source, some)
        target += some
        source += some
        nbytes -= some
        if nbytes:
            PyErr_CheckSignals()
    return 0
