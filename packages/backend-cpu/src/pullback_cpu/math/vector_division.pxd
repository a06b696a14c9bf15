# Divisions with remainder in vectors: processors divide no vectors of integers, and fmod is a loop.
# They pay, and are exact, where the processor has fma.
#
# The quotient x / y of two numbers with p bits is rounded, so its whole part may be too large by
# one, but no more; then the remainder is negative. The quotient of integers is at least 1 / |y|
# from the next integer, unless it is one: where |x| < 2**(p - 2), rounding does not reach that. For
# floating-point numbers with |x / y| < 2**(p - 1), the remainder from such a whole part is exact,
# and so is adding y to it: if the lowest bit of y is not below the one of x, the remainder is a
# multiple of it and below y; if it is below, a rounded quotient that is too large would need a
# remainder below the lowest bit of x, so the whole part is right, and the remainder has no more
# bits than x.
from libc.math cimport INFINITY, copysign, copysignf, fabs, fabsf
from libc.stdint cimport int32_t, int64_t, uint64_t

from pullback_cpu.math.vector_bits cimport bits_of_double, double_of_bits, fma_f32, fma_f64


cdef extern from *:
    float whole_f32 "__builtin_truncf"(float x) noexcept nogil
    double whole_f64 "__builtin_trunc"(double x) noexcept nogil
    float below_f32 "__builtin_floorf"(float x) noexcept nogil
    double below_f64 "__builtin_floor"(double x) noexcept nogil


# -- integers: y is not 0 -------------------------------------------------------------------------
# Those of 8 and 16 bits in float, of 32 bits in double, and of 64 bits too where x and y are short.
# Conversions of double to 64 bits and back add a number, which every processor can do in vectors.

cdef inline double double_of_short(int64_t x) noexcept nogil:
    """Return an integer that ``is_short``."""
    cdef double shift = 6755399441055744.  # 1.5 * 2**52: its last bit stands for 1
    return double_of_bits(<uint64_t>x + bits_of_double(shift)) - shift


cdef inline int64_t short_of_double(double x) noexcept nogil:
    """Return a whole number of at most 2**51."""
    cdef double shift = 6755399441055744.
    return <int64_t>(bits_of_double(x + shift) - bits_of_double(shift))


cdef inline bint is_short(int64_t x) noexcept nogil:
    """Say whether a number is in -2**50 .. 2**50 - 1."""
    return (<uint64_t>x + (<uint64_t>1 << 50)) >> 51 == 0


cdef inline int32_t floor_divide_in_f32(float x, float y) noexcept nogil:
    return <int32_t>below_f32(x / y)


cdef inline int32_t fmod_in_f32(float x, float y) noexcept nogil:
    return <int32_t>(x - whole_f32(x / y) * y)


cdef inline int32_t remainder_in_f32(float x, float y) noexcept nogil:
    return <int32_t>(x - below_f32(x / y) * y)


cdef inline int32_t floor_divide_in_f64(double x, double y) noexcept nogil:
    # The one quotient of more than 32 bits, -2**31 / -1, wraps around.
    return <int32_t>short_of_double(below_f64(x / y))


cdef inline int32_t fmod_in_f64(double x, double y) noexcept nogil:
    return <int32_t>(x - whole_f64(x / y) * y)


cdef inline int32_t remainder_in_f64(double x, double y) noexcept nogil:
    return <int32_t>(x - below_f64(x / y) * y)


cdef inline int64_t floor_divide_short(double x, double y) noexcept nogil:
    return short_of_double(below_f64(x / y))


cdef inline int64_t fmod_short(double x, double y) noexcept nogil:
    return short_of_double(x - whole_f64(x / y) * y)


cdef inline int64_t remainder_short(double x, double y) noexcept nogil:
    return short_of_double(x - below_f64(x / y) * y)


# -- floating-point numbers that are near: |x / y| is small, and neither is NaN -------------------

cdef inline bint is_near_f32(float x, float y) noexcept nogil:
    cdef float bound = 8388608.  # 2**23
    return (fabsf(x) < fabsf(y) * bound) & (fabsf(y) < INFINITY)


cdef inline float fmod_near_f32(float x, float y) noexcept nogil:
    cdef float size = fabsf(x), step = fabsf(y)
    cdef float rest = fma_f32(-whole_f32(size / step), step, size)
    return copysignf(rest + step if rest < 0 else rest, x)


cdef inline float remainder_near_f32(float x, float y) noexcept nogil:
    cdef float rest = fmod_near_f32(x, y)
    return rest + y if (rest != 0) & ((rest < 0) != (y < 0)) else rest


cdef inline float floor_divide_near_f32(float x, float y) noexcept nogil:
    """As ``floor_divide_floatf``."""
    cdef float rest = fmod_near_f32(x, y), one = 1, zero = 0, half = 0.5
    cdef float quotient = (x - rest) / y, whole
    quotient -= one if (rest != 0) & ((rest < 0) != (y < 0)) else zero
    whole = below_f32(quotient)
    whole += one if quotient - whole > half else zero
    return copysignf(zero, copysignf(one, x) * y) if quotient == 0 else whole


cdef inline bint is_near_f64(double x, double y) noexcept nogil:
    cdef double bound = 4503599627370496.  # 2**52
    return (fabs(x) < fabs(y) * bound) & (fabs(y) < INFINITY)


cdef inline double fmod_near_f64(double x, double y) noexcept nogil:
    cdef double size = fabs(x), step = fabs(y)
    cdef double rest = fma_f64(-whole_f64(size / step), step, size)
    return copysign(rest + step if rest < 0 else rest, x)


cdef inline double remainder_near_f64(double x, double y) noexcept nogil:
    cdef double rest = fmod_near_f64(x, y)
    return rest + y if (rest != 0) & ((rest < 0) != (y < 0)) else rest


cdef inline double floor_divide_near_f64(double x, double y) noexcept nogil:
    """As ``floor_divide_float``."""
    cdef double rest = fmod_near_f64(x, y), one = 1, zero = 0, half = 0.5
    cdef double quotient = (x - rest) / y, whole
    quotient -= one if (rest != 0) & ((rest < 0) != (y < 0)) else zero
    whole = below_f64(quotient)
    whole += one if quotient - whole > half else zero
    return copysign(zero, copysign(one, x) * y) if quotient == 0 else whole
