from libc.stdint cimport int64_t


# The size of a call, and those of two calls.
cdef class Line:
    cdef readonly int64_t low, high, at
    cdef bint exact

    cdef bint number(self, int64_t low, int64_t high, int64_t *found) noexcept
    cdef bint extent(self, int64_t low, int64_t high, int64_t *found) noexcept
    cdef bint size(self, int64_t low, int64_t high, int64_t at) noexcept


cdef bint sizes_between(Line line, int count, const int64_t *low, const int64_t *high,
                        int64_t *found) noexcept
cdef bint strides_between(
    Line line, int ndim, const int64_t *low_shape, const int64_t *low, const int64_t *high_shape,
    const int64_t *high, const int64_t *shape, int64_t *found) noexcept
