# Arithmetic of elements, real or complex, for loops that are written once.
from libc.math cimport fabs

from pullback_cpu.kernels.common.kernel cimport *
from pullback_cpu.math.scalar_math cimport div_c64, div_c128, mul_c64, mul_c128


ctypedef fused element:
    float
    double
    c64
    c128


cdef inline double size_of(element x) noexcept nogil:
    if element is c64 or element is c128:
        return fabs(x.real) + fabs(x.imag)
    else:
        return fabs(x)


cdef inline element quotient(element x, element y) noexcept nogil:
    if element is c64:
        return div_c64(x, y)
    elif element is c128:
        return div_c128(x, y)
    else:
        return x / y


cdef inline element less_product(element x, element y, element z) noexcept nogil:
    """Return x - y z."""
    if element is c64:
        return x - mul_c64(y, z)
    elif element is c128:
        return x - mul_c128(y, z)
    else:
        return x - y * z


cdef inline element conjugate(element x) noexcept nogil:
    if element is c64:
        return make_c64(x.real, -x.imag)
    elif element is c128:
        return make_c128(x.real, -x.imag)
    else:
        return x


cdef inline element made_real(double x, element kind) noexcept nogil:
    if element is c64:
        return make_c64(<float>x, 0)
    elif element is c128:
        return make_c128(x, 0)
    else:
        return <element>x


cdef inline double real_of(element x) noexcept nogil:
    if element is c64 or element is c128:
        return x.real
    else:
        return x


cdef inline element product(element x, element y) noexcept nogil:
    if element is c64:
        return mul_c64(x, y)
    elif element is c128:
        return mul_c128(x, y)
    else:
        return x * y


cdef inline double imag_of(element x) noexcept nogil:
    if element is c64 or element is c128:
        return x.imag
    else:
        return 0


cdef inline element made_complex(double re, double im, element kind) noexcept nogil:
    if element is c64:
        return make_c64(<float>re, <float>im)
    elif element is c128:
        return make_c128(re, im)
    else:
        return <element>re
