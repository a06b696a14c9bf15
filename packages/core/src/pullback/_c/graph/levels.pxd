from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from pullback._c.graph.tensor cimport Tensor


cdef enum:
    LEVEL_OF_WATCHER = -2           # as the size of a level


# One run of forward mode, of vmap or of a watcher, on one thread.
cdef class Level:
    cdef readonly int number
    cdef readonly int size          # of vmap's batch; -1: forward mode
    cdef readonly object randomness  # of vmap: "error", "same" or "different"
    cdef object on_call             # of a watcher: told of ops, or None
    cdef object on_write            # of a watcher: told of writes, or None
    cdef PyObject *first            # borrowed: the lifts at this level, linked


# What a level adds to a tensor: one batch, or a list of tangents, the innermost level first.
cdef class Lift:
    cdef Level level
    cdef Tensor value               # its tangent, or its batch; None once the level has ended
    cdef Lift outer                 # of the next level outwards
    cdef PyObject *before           # borrowed: neighbours in the level's list
    cdef PyObject *after


cdef Lift lifts(Tensor tensor)
cdef int attach(Tensor tensor, Lift lift) except -1
cdef Lift link(Tensor value, Level level, Lift outer)
cdef Level open_level(int level, str name)
cdef bint is_open_here(Level level) noexcept
cdef bint sees_base(Tensor tensor) noexcept
cdef uint64_t hide_level(int level) noexcept
cdef Level batch_level(Tensor tensor)
cdef Level innermost_level(bint of_watcher)
cdef int level_size(int level) except? -3
cdef int tangent_level(Tensor tensor, uint64_t hidden) except -1
cdef int refuse_escaped() except -1
cdef Tensor batch_of(Tensor tensor)
cpdef Tensor whole(Tensor tensor)
