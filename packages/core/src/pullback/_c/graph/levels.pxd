from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from pullback._c.graph.tensor cimport Tensor


cdef enum:
    LEVEL_OF_DISPATCH_MODE = -2     # as the size of a level


# One run of forward mode, of vmap or of a dispatch mode, on one thread.
cdef class Level:
    cdef readonly int number
    cdef readonly int size          # of vmap's batch; -1: forward mode
    cdef readonly object randomness  # of vmap: "error", "same" or "different"
    cdef object on_call             # of a dispatch mode: receives ops; or None
    cdef object on_write            # of a dispatch mode: notified of writes; or None
    cdef PyObject *first            # borrowed: linked list of the wrapper states at this level


# The state that levels add to a tensor: a batch or tangents, a list from the innermost level.
cdef class WrapperState:
    cdef Level level
    cdef Tensor value               # its tangent, or its batch; None once the level has ended
    cdef WrapperState outer         # the same tensor's, of an outer level; or None
    cdef PyObject *before           # borrowed: neighbours in the level's list
    cdef PyObject *after


cdef WrapperState wrapper_state(Tensor tensor)
cdef int attach(Tensor tensor, WrapperState wrapper) except -1
cdef WrapperState link(Tensor value, Level level, WrapperState outer)
cdef Level open_level(int level, str name)
cdef bint is_open_here(Level level) noexcept
cdef bint sees_base(Tensor tensor) noexcept
cdef uint64_t disable_level(int level) noexcept
cdef Level batch_level(Tensor tensor)
cdef Level innermost_level(bint of_dispatch_mode)
cdef int level_size(int level) except? -3
cdef int tangent_level(Tensor tensor, uint64_t disabled) except -1
cdef int raise_escaped() except -1
cdef Tensor batch_of(Tensor tensor)
cpdef Tensor whole(Tensor tensor)
