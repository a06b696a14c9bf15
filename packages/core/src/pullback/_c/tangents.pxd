from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from pullback._c.tensor cimport Tensor


# One run of forward mode on one thread.
cdef class Level:
    cdef readonly int number
    cdef PyObject *first            # borrowed: the level's living tangents, linked


# The tangent of a tensor at one level. A tensor has a list of them, the innermost level first.
cdef class Tangent:
    cdef Level level
    cdef Tensor value               # None once the level has ended
    cdef Tangent outer              # of the next level outwards
    cdef PyObject *before           # borrowed: neighbours in the level's list
    cdef PyObject *after


cdef uint64_t hide_levels(int level) noexcept
cdef int level_of(Tensor tensor, uint64_t hidden) except -1
cdef Tensor tangent_of(Tensor tensor, int level)
cdef Tensor zeros_in_layout(Tensor tensor)
cdef int set_tangent(Tensor tensor, int level, Tensor value) except -1
