# Functions of one element that need more than an expression.
from libc.math cimport (
    INFINITY, atan2, ceil, copysign, copysignf, cos, exp, expm1, fabs, floor, floorf, fmod, fmodf,
    hypot, log, log1p, sin, sqrt)
from libc.stdint cimport int64_t, uint64_t

from pullback_cpu.kernels.common.kernel cimport (
    c64, c128, make_c64, make_c128, narrow_c128, widen_c64)


cdef extern from "<complex.h>" nogil:
    c128 cexp(c128 z)
    c128 clog(c128 z)
    c128 csqrt(c128 z)
    c128 csin(c128 z)
    c128 ccos(c128 z)
    c128 ctan(c128 z)
    c128 casin(c128 z)
    c128 cacos(c128 z)
    c128 catan(c128 z)
    c128 casinh(c128 z)
    c128 cacosh(c128 z)
    c128 catanh(c128 z)
    c128 csinh(c128 z)
    c128 ccosh(c128 z)
    c128 ctanh(c128 z)
    c128 cpow(c128 z, c128 w)


# -- integers. Every signed operation wraps around; nothing here traps. ---------------------------

cdef inline int64_t floor_divide_int(int64_t x, int64_t y) noexcept nogil:
    cdef int64_t quotient
    if y == -1:
        return -x
    quotient = x // y
    return quotient - (quotient * y != x and (x < 0) != (y < 0))


cdef inline int64_t fmod_int(int64_t x, int64_t y) noexcept nogil:
    return 0 if y == -1 else x % y


cdef inline int64_t remainder_int(int64_t x, int64_t y) noexcept nogil:
    cdef int64_t rest = fmod_int(x, y)
    return rest + y if rest != 0 and (rest < 0) != (y < 0) else rest


cdef inline int64_t gcd_int(int64_t x, int64_t y) noexcept nogil:
    # Euclid's algorithm, unsigned so that the smallest integer has an absolute value.
    cdef uint64_t a = <uint64_t>(-x if x < 0 else x), b = <uint64_t>(-y if y < 0 else y), rest
    while b:
        rest = a % b
        a = b
        b = rest
    return <int64_t>a


cdef inline int64_t pow_int(int64_t base, int64_t exponent) noexcept nogil:
    cdef uint64_t result = 1, square = <uint64_t>base
    if exponent < 0:
        if base == 1:
            return 1
        if base == -1:
            return -1 if exponent & 1 else 1
        return 0
    while exponent:
        if exponent & 1:
            result *= square
        square *= square
        exponent >>= 1
    return <int64_t>result


cdef inline int64_t lshift_int(int64_t x, int64_t count, int bits) noexcept nogil:
    return 0 if <uint64_t>count >= <uint64_t>bits else <int64_t>(<uint64_t>x << count)


cdef inline int64_t rshift_int(int64_t x, int64_t count, int bits) noexcept nogil:
    # A shift by too much leaves the sign.
    return x >> (63 if <uint64_t>count >= <uint64_t>bits else count)


# -- real numbers ---------------------------------------------------------------------------------

cdef inline double remainder_float(double x, double y) noexcept nogil:
    cdef double rest = fmod(x, y)
    return rest + y if rest != 0 and (rest < 0) != (y < 0) else rest


cdef inline float remainder_floatf(float x, float y) noexcept nogil:
    cdef float rest = fmodf(x, y)
    return rest + y if rest != 0 and (rest < 0) != (y < 0) else rest


cdef inline double floor_divide_float(double x, double y) noexcept nogil:
    # From the remainder, so that it agrees with it where x / y rounds up to a whole number.
    cdef double rest, quotient, whole
    if y == 0:
        return x / y
    rest = fmod(x, y)
    quotient = (x - rest) / y
    if rest != 0 and (rest < 0) != (y < 0):
        quotient -= 1
    if quotient == 0:
        return copysign(0, x / y)
    whole = floor(quotient)
    return whole + 1 if quotient - whole > 0.5 else whole


cdef inline float floor_divide_floatf(float x, float y) noexcept nogil:
    cdef float rest, quotient, whole
    if y == 0:
        return x / y
    rest = fmodf(x, y)
    quotient = (x - rest) / y
    if rest != 0 and (rest < 0) != (y < 0):
        quotient -= 1
    if quotient == 0:
        return copysignf(0, x / y)
    whole = floorf(quotient)
    return whole + 1 if quotient - whole > 0.5 else whole


# -- complex numbers ------------------------------------------------------------------------------
# Products by the plain formula; C's operator would test every one for NaN. Each of the four is
# rounded: GCC has a fused instruction for vectors of complex numbers and takes it in some loops,
# with -ffp-contract=off too, and then bits would depend on the alignment of memory.

cdef extern from *:
    """
    #if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
    #define PB_ROUNDED(x) __builtin_assoc_barrier(x)
    #else
    #define PB_ROUNDED(x) (x)
    #endif
    """
    float rounded_f32 "PB_ROUNDED"(float x) noexcept nogil
    double rounded_f64 "PB_ROUNDED"(double x) noexcept nogil


cdef inline c64 mul_c64(c64 x, c64 y) noexcept nogil:
    return make_c64(rounded_f32(x.real * y.real) - rounded_f32(x.imag * y.imag),
                    rounded_f32(x.real * y.imag) + rounded_f32(x.imag * y.real))


cdef inline c128 mul_c128(c128 x, c128 y) noexcept nogil:
    return make_c128(rounded_f64(x.real * y.real) - rounded_f64(x.imag * y.imag),
                     rounded_f64(x.real * y.imag) + rounded_f64(x.imag * y.real))


cdef inline c128 div_c128(c128 x, c128 y) noexcept nogil:
    # Smith's division (Comm. ACM 5(8), 1962): scale by the larger part of y against overflow.
    cdef double ratio, scale
    if fabs(y.real) >= fabs(y.imag):
        if y.real == 0 and y.imag == 0:
            return make_c128(x.real / fabs(y.real), x.imag / fabs(y.real))
        ratio = y.imag / y.real
        scale = 1 / (y.real + y.imag * ratio)
        return make_c128((x.real + x.imag * ratio) * scale, (x.imag - x.real * ratio) * scale)
    ratio = y.real / y.imag
    scale = 1 / (y.imag + y.real * ratio)
    return make_c128((x.real * ratio + x.imag) * scale, (x.imag * ratio - x.real) * scale)


cdef inline c64 tanh_derivative_c64(c64 y) noexcept nogil:
    """Return conj(1 - y * y)."""
    cdef c64 square = mul_c64(y, y)
    return make_c64(1 - square.real, square.imag)


cdef inline c128 tanh_derivative_c128(c128 y) noexcept nogil:
    cdef c128 square = mul_c128(y, y)
    return make_c128(1 - square.real, square.imag)


cdef inline c64 sigmoid_derivative_c64(c64 y) noexcept nogil:
    """Return conj(y * (1 - y))."""
    cdef c64 square = mul_c64(y, y)
    return make_c64(y.real - square.real, square.imag - y.imag)


cdef inline c128 sigmoid_derivative_c128(c128 y) noexcept nogil:
    cdef c128 square = mul_c128(y, y)
    return make_c128(y.real - square.real, square.imag - y.imag)


cdef inline c64 div_c64(c64 x, c64 y) noexcept nogil:
    return narrow_c128(div_c128(widen_c64(x), widen_c64(y)))


cdef inline double size_of_c64(c128 z) noexcept nogil:
    """Return |z| of a number that came from complex64: in double its squares do not overflow."""
    cdef double size = sqrt(z.real * z.real + z.imag * z.imag)
    return INFINITY if (fabs(z.real) == INFINITY) | (fabs(z.imag) == INFINITY) else size


cdef inline c128 reciprocal_c128(c128 z) noexcept nogil:
    return div_c128(make_c128(1, 0), z)


cdef inline c128 scale_c128(c128 z, double factor) noexcept nogil:
    return make_c128(z.real * factor, z.imag * factor)


cdef inline c128 sigmoid_c128(c128 z) noexcept nogil:
    cdef c128 power
    if z.real < 0:      # e^-z may overflow
        power = cexp(z)
        return div_c128(power, make_c128(1 + power.real, power.imag))
    power = cexp(-z)
    return reciprocal_c128(make_c128(1 + power.real, power.imag))


cdef inline c128 log1p_c128(c128 z) noexcept nogil:
    # |1 + z|^2 = 1 + x (2 + x) + y^2 keeps the digits of a small z.
    cdef double square
    if fabs(z.real) < 0.5 and fabs(z.imag) < 0.5:
        square = z.real * (2 + z.real) + z.imag * z.imag
        return make_c128(0.5 * log1p(square), atan2(z.imag, 1 + z.real))
    return clog(make_c128(1 + z.real, z.imag))


cdef inline c128 expm1_c128(c128 z) noexcept nogil:
    # cos y - 1 = -2 sin(y/2)^2 keeps the digits of a small z.
    cdef double half_sine
    cdef c128 power
    if not (z.real < 80 and fabs(z.imag) < INFINITY):   # the power has all digits, or limits
        power = cexp(z)
        return make_c128(power.real - 1, power.imag)
    half_sine = sin(0.5 * z.imag)
    return make_c128(
        expm1(z.real) * cos(z.imag) - 2 * half_sine * half_sine, exp(z.real) * sin(z.imag))


cdef inline c128 pow_c128(c128 z, c128 w) noexcept nogil:
    if w.imag == 0:
        if w.real == 0:
            return make_c128(1, 0)
        if w.real == 2:
            return mul_c128(z, z)
    return cpow(z, w)


cdef inline c64 pow_c64(c64 z, c64 w) noexcept nogil:
    return narrow_c128(pow_c128(widen_c64(z), widen_c64(w)))
