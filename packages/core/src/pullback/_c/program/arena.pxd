from pullback._c.program.launches cimport Buffer


cdef bint is_temporary(Buffer one) noexcept
cdef list place_temporaries(list buffers, set apart, list launches, list groups)
