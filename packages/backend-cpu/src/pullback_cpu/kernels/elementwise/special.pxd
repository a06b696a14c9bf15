# What all instruction sets share: the tables of functions by pieces, and SciPy's functions.
from pullback_cpu.kernels.common.kernel cimport pb_call
from pullback_cpu.math.pieces cimport pieces

cdef enum table_name:
    OF_I0E
    OF_I1E
    OF_K0E
    OF_K1E
    OF_J0
    OF_J1
    OF_Y0
    OF_Y1
    OF_ERFCX
    OF_LOG_NDTR
    OF_DIGAMMA
    OF_TRIGAMMA
    OF_AIRY_LEFT
    OF_AIRY_RIGHT
    NUM_TABLES

cdef const pieces *pieces_of(table_name name) noexcept nogil
cdef int load_scipy(pb_call *call) noexcept nogil
cdef double gamma_part_of_scipy(bint upper, double a, double x) noexcept nogil
