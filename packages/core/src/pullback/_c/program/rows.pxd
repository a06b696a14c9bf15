from libc.stdint cimport int64_t

from pullback._c.program.launches cimport Launch


cdef enum:
    MAX_DIMS = 4                # of operands of a group's launches
    MAX_TILED = 6               # operands of one launch


cdef int whole_operands(Launch launch) except -2
cdef bint is_elementwise(Launch launch) noexcept
cdef int numbers_of_block(Launch launch) noexcept
cdef int64_t elements(Launch launch) noexcept
cdef bint by_rows(Launch launch, int64_t rows, int which, int64_t *advance, int64_t *scale,
                  bint *disjoint) noexcept
