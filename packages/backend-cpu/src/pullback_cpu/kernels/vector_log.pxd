# Logarithms that vectorise: log(x) is k log(2) + log(1 + f), 1 + f from sqrt(1/2) to sqrt(2).
from libc.math cimport copysign, copysignf, fabsf, sqrt
from libc.stdint cimport int32_t, uint32_t, uint64_t

from pullback_cpu.kernels.half cimport bits_of_float, float_of_bits
from pullback_cpu.kernels.vector_bits cimport *


# -- float32 --------------------------------------------------------------------------------------

cdef inline float split_log_f32(float x, float *k) noexcept nogil:
    """Return f and set k such that x = 2**k (1 + f)."""
    cdef float tiny = 1.17549435e-38, up = 8388608, one = 1, zero = 0, twenty_three = 23
    cdef float scale = up if x < tiny else one, added = twenty_three if x < tiny else zero
    # 0x3F3504F3 is sqrt(1/2).
    cdef int32_t bits = <int32_t>(bits_of_float(x * scale) - 0x3F3504F3), exponent = bits >> 23
    k[0] = <float>exponent - added
    return float_of_bits(<uint32_t>(bits & 0x7FFFFF) + 0x3F3504F3) - one


cdef inline float log_tail_f32(float f) noexcept nogil:
    """Return log(1 + f) - f."""
    return f * f * poly10_f32(     # log_f32
        f, -0.5, 0.333333135, -0.250000089, 0.200020716, -0.1666805, 0.142204553,
        -0.124044538, 0.118802145, -0.116814934, 0.0677291751)


cdef inline float finish_log_f32(float x, float result) noexcept nogil:
    cdef float other = -INF32 if x == 0 else NAN32
    result = result if x > 0 else other
    return x if x == INF32 else result


cdef inline float log_f32(float x) noexcept nogil:
    # The sum of the large parts keeps what it loses. 355 / 512 times k is exact.
    cdef float k, f = split_log_f32(x, &k), high = 0.693359375, low = -2.12194440e-4
    cdef float start = k * high, total = start + f, lost = (start - total) + f
    return finish_log_f32(x, total + (lost + (log_tail_f32(f) + k * low)))


cdef inline float log2_f32(float x) noexcept nogil:
    cdef float k, f = split_log_f32(x, &k), log2e = 1.44269502, log2e_low = 1.92596303e-8
    cdef float product = f * log2e, product_low = fma_f32(f, log2e, -product) + f * log2e_low
    cdef float total = k + product, lost = (k - total) + product
    return finish_log_f32(x, total + (lost + (product_low + log_tail_f32(f) * log2e)))


cdef inline float log10_f32(float x) noexcept nogil:
    # 308 / 1024 and the rest are log10(2).
    cdef float k, f = split_log_f32(x, &k), high = 0.30078125, low = 2.48745664e-4
    cdef float log10e = 0.434294492, log10e_low = -1.010305e-8
    cdef float product = f * log10e, product_low = fma_f32(f, log10e, -product) + f * log10e_low
    cdef float start = k * high, total = start + product, lost = (start - total) + product
    return finish_log_f32(
        x, total + (lost + (product_low + (log_tail_f32(f) * log10e + k * low))))


# -- float32 in double, where that is shorter -----------------------------------------------------

cdef inline double split_log_f64(double x, double *k) noexcept nogil:
    """Return f and set k such that x = 2**k (1 + f), for a normal number x > 0."""
    # 0x3FE6A09E667F3BCD is sqrt(1/2). The exponent becomes a number as the last bits of 2**52.
    cdef uint64_t base = 0x3FE6A09E667F3BCD, one = 0x3FF0000000000000, whole = 0x4330000000000000
    cdef uint64_t mantissa = 0xFFFFFFFFFFFFF
    cdef uint64_t bits = bits_of_double(x) - base + one
    k[0] = double_of_bits((bits >> 52) | whole) - (4503599627370496. + 1023.)
    return double_of_bits((bits & mantissa) + base) - 1


cdef inline double log_wide(double x) noexcept nogil:
    """Return log(x) with 35 bits, for a normal number x > 0."""
    cdef double k, f = split_log_f64(x, &k)
    return k * 0.69314718055994529 + f * (1 + f * poly12_f64(     # log_wide
        f, -0.5, 0.33333333891643563, -0.24999997072970304, 0.19999911309609017,
        -0.16666855361347702, 0.14290173128089614, -0.12498279200854551,
        0.11014801384176306, -0.099246293843760852, 0.099884992671558939,
        -0.098627008300547839, 0.0538636047203628))


cdef inline float log1p_f32(float x) noexcept nogil:
    cdef float least = 2.98023224e-8, one = 1
    cdef float result = finish_log_f32(x + one, <float>log_wide(1. + x))
    return x if fabsf(x) < least else result


cdef inline float asinh_f32(float x) noexcept nogil:
    cdef float least = 2.44140625e-4
    cdef double size = fabsf(x)
    cdef float result = <float>log_wide(size + sqrt(size * size + 1))
    result = copysignf(result, x)
    result = x if fabsf(x) < least else result
    return result if fabsf(x) < INF32 else x


cdef inline float acosh_f32(float x) noexcept nogil:
    cdef double wide = x
    cdef float result = <float>log_wide(wide + sqrt(wide * wide - 1))
    result = result if x >= 1 else NAN32
    return x if x == INF32 else result


cdef inline float atanh_f32(float x) noexcept nogil:
    cdef float least = 2.44140625e-4, one = 1, size = fabsf(x)
    cdef double wide = size
    cdef float result = <float>(0.5 * log_wide((1 + wide) / (1 - wide)))
    cdef float other = INF32 if size == one else NAN32
    result = copysignf(result if size < one else other, x)
    return x if size < least else result


# -- float64 --------------------------------------------------------------------------------------

cdef inline double split_any_log_f64(double x, double *k) noexcept nogil:
    """As split_log_f64, also for subnormal x."""
    cdef bint tiny = x < 2.2250738585072014e-308
    cdef double f = split_log_f64(x * (18014398509481984. if tiny else 1.), k)
    k[0] = k[0] - (54. if tiny else 0.)
    return f


cdef inline double log_tail_f64(double f) noexcept nogil:
    """Return log(1 + f) - f, from the series of log((1 + s) / (1 - s)), s = f / (2 + f)."""
    cdef double s = f / (2 + f), square = s * s, half_square = 0.5 * f * f
    return s * (half_square + square * poly7_f64(      # log_f64
        square, 0.6666666666666734, 0.39999999999416197, 0.28571428742186034,
        0.22222198584350999, 0.1818356411688169, 0.15314048343008219, 0.14796034672266536)
    ) - half_square


cdef inline double finish_log_f64(double x, double result) noexcept nogil:
    cdef double other = -INF64 if x == 0 else NAN64
    result = result if x > 0 else other
    return x if x == INF64 else result


cdef inline double log_f64(double x) noexcept nogil:
    cdef double k, f = split_any_log_f64(x, &k), start = k * 0.6931471805598903
    cdef double total = start + f, lost = (start - total) + f
    return finish_log_f64(
        x, total + (lost + (log_tail_f64(f) + k * 5.497923018708371e-14)))


cdef inline double log1p_f64(double x) noexcept nogil:
    # With the rounding error of 1 + x.
    cdef double y = 1 + x, part = y - x, error = (x - (y - part)) + (1 - part)
    cdef double k, f = split_log_f64(y, &k), start = k * 0.6931471805598903
    cdef double total = start + f, lost = (start - total) + f
    cdef double result = total + (lost + (
        log_tail_f64(f) + (k * 5.497923018708371e-14 + error / y)))
    return copysign(finish_log_f64(y, result), x) if y > 0 else finish_log_f64(y, result)


cdef inline double log2_f64(double x) noexcept nogil:
    cdef double k, f = split_any_log_f64(x, &k), log2e = 1.4426950408889634
    cdef double product = f * log2e
    cdef double product_low = fma_f64(f, log2e, -product) + f * 2.0355273740931033e-17
    cdef double total = k + product, lost = (k - total) + product
    return finish_log_f64(x, total + (lost + (product_low + log_tail_f64(f) * log2e)))


cdef inline double log10_f64(double x) noexcept nogil:
    cdef double k, f = split_any_log_f64(x, &k), log10e = 0.4342944819032518
    cdef double product = f * log10e
    cdef double product_low = fma_f64(f, log10e, -product) + f * 1.098319650216765e-17
    cdef double start = k * 0.30102999566395283
    cdef double total = start + product, lost = (start - total) + product
    return finish_log_f64(x, total + (lost + (
        product_low + (log_tail_f64(f) * log10e + k * 2.8363394551044964e-14))))
