# Logarithms that vectorise: log(x) is k log(2) + log(1 + f), 1 + f from sqrt(1/2) to sqrt(2).
from libc.math cimport copysign, copysignf, fabs, fabsf, sqrt
from libc.stdint cimport int32_t, uint32_t, uint64_t

from pullback_cpu.math.half cimport bits_of_float, float_of_bits
from pullback_cpu.math.vector_bits cimport *


# -- float32 --------------------------------------------------------------------------------------

# Numbers k are kept times 2**23, as they come from a float's bits; constants make up for it.

cdef inline uint32_t exponent_f32(float x) noexcept nogil:
    """Return k, in the exponent's bits, such that x is 2**k times a number about 1."""
    cdef uint32_t root = 0x3F3504F3, mask = 0xFF800000      # the former is sqrt(1/2)
    return (bits_of_float(x) - root) & mask


cdef inline float split_log_f32(float x, float *k) noexcept nogil:
    """Return f and set k such that x = 2**k (1 + f), for a normal number x > 0."""
    cdef uint32_t bits = bits_of_float(x), exponent = exponent_f32(x)
    cdef float one = 1
    k[0] = <float><int32_t>exponent
    return float_of_bits(bits - exponent) - one


cdef inline float split_any_log_f32(float x, float *k) noexcept nogil:
    """As split_log_f32, also for subnormal x."""
    cdef float tiny = 1.17549435e-38, up = 8388608, one = 1, zero = 0, added = 192937984
    cdef float f = split_log_f32(x * (up if x < tiny else one), k)
    k[0] -= added if x < tiny else zero
    return f


cdef inline float log_series_f32(float f) noexcept nogil:
    """Return (log(1 + f) - f) / f**2."""
    return poly9_f32(      # log_f32
        f, -0.5, 0.333333313, -0.250008225, 0.200012654, -0.166233242, 0.142007202, -0.131594658,
        0.127696127, -0.0764730126)


cdef inline float finish_log_f32(float x, float result) noexcept nogil:
    cdef float other = -INF32 if x == 0 else NAN32
    result = result if x > 0 else other
    return x if x == INF32 else result


# 355 / 512 times k is exact, and so are 308 / 1024 times k of log10(2).

cdef inline float log_sum_f32(float k, float f, float low) noexcept nogil:
    """Return log(2**k (1 + f)) + low for a low that is small."""
    cdef float high = 8.26548785e-8, high_rest = -2.52955484e-11
    low = add_product_f32(k, high_rest, low)
    return add_product_f32(k, high, f + add_product_f32(f * f, log_series_f32(f), low))


# In other bases a part of the factor of f has so few bits that its product with f is exact. What is
# left of the factor is small, and so are the errors of its polynomial.

cdef inline float log2_sum_f32(float k, float f) noexcept nogil:
    # The exact part of the factor is 3/2 - 3/4 f.
    cdef float down = 1.1920929e-7, part = f * <float>1.5, half = 0.5
    cdef float factor = poly10_f32(    # log2_f32
        f, -0.0573049597, 0.0286526605, 0.48089847, -0.360698014, 0.288554639, -0.239571109,
        0.204826191, -0.191705599, 0.184940919, -0.106754161)
    return k * down + add_product_f32(f, factor - half * part, part)


cdef inline float log10_sum_f32(float k, float f) noexcept nogil:
    # Where k is 1 or -1 the sum may cancel: it keeps what it loses.
    cdef float high = 3.58559191e-8, high_rest = 2.96527939e-11, part = f * <float>0.375
    cdef float total = add_product_f32(k, high, part)
    cdef float lost = add_product_f32(k, high, -total) + part
    cdef float factor = poly10_f32(    # log10_f32
        f, 0.0592944808, -0.217147171, 0.144765168, -0.108582474, 0.0868479684, -0.0720695406,
        0.0619084127, -0.0583340973, 0.0544382036, -0.0292533655)
    return total + add_product_f32(f, factor, add_product_f32(k, high_rest, lost))


cdef inline float log1p_sum_f32(float x) noexcept nogil:
    # f = x / 2**k + (1 / 2**k - 1), from the k of 1 + x, with what the sum loses. 1 / 2**k may be
    # subnormal: four times it is not.
    cdef float one = 1, y = one + x, quarter = 0.25, k
    cdef uint32_t exponent = exponent_f32(y), four = 0x40800000
    cdef float scale = quarter * float_of_bits(four - exponent), below = scale - one
    cdef float f = add_product_f32(x, scale, below)
    k = <float><int32_t>exponent
    return copysignf(log_sum_f32(k, f, add_product_f32(x, scale, below - f)), x)


cdef inline float log_inside_f32(float x) noexcept nogil:
    """Return log(x) of a normal number x > 0; so do the two that follow."""
    cdef float k, f = split_log_f32(x, &k)
    return log_sum_f32(k, f, 0)


cdef inline float log2_inside_f32(float x) noexcept nogil:
    cdef float k, f = split_log_f32(x, &k)
    return log2_sum_f32(k, f)


cdef inline float log10_inside_f32(float x) noexcept nogil:
    cdef float k, f = split_log_f32(x, &k)
    return log10_sum_f32(k, f)


cdef inline float log1p_inside_f32(float x) noexcept nogil:
    """Return log(1 + x) of a finite x > -1."""
    return log1p_sum_f32(x)


cdef inline float log_f32(float x) noexcept nogil:
    cdef float k, f = split_any_log_f32(x, &k)
    return finish_log_f32(x, log_sum_f32(k, f, 0))


cdef inline float log2_f32(float x) noexcept nogil:
    cdef float k, f = split_any_log_f32(x, &k)
    return finish_log_f32(x, log2_sum_f32(k, f))


cdef inline float log10_f32(float x) noexcept nogil:
    cdef float k, f = split_any_log_f32(x, &k)
    return finish_log_f32(x, log10_sum_f32(k, f))


cdef inline float log1p_f32(float x) noexcept nogil:
    cdef float one = 1
    return finish_log_f32(one + x, log1p_sum_f32(x))


cdef inline float entr_f32(float x) noexcept nogil:
    cdef float zero = 0
    return zero if x == zero else (-x * log_f32(x) if x >= zero else (-INF32 if x < zero else x))


# logit(x) = log(q + rest) where q is x / (1 - x), rounded. Where the rest counts, 1 / x is about
# 4 - 4 x.

cdef inline float logit_f32(float x) noexcept nogil:
    cdef float one = 1, four = 4, k, below = one - x, below_low = (one - below) - x, q = x / below
    cdef float rest = fma_f32(-q, below, x) - q * below_low
    cdef float f = split_any_log_f32(q, &k)
    return finish_log_f32(q, log_sum_f32(k, f, rest * (four - four * x)))


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
    cdef double series = poly7_f64(    # log_f64
        square, 0.6666666666666734, 0.39999999999416197, 0.28571428742186034,
        0.22222198584350999, 0.1818356411688169, 0.15314048343008219, 0.14796034672266536)
    return add_product_f64(s, add_product_f64(square, series, half_square), -half_square)


cdef inline double finish_log_f64(double x, double result) noexcept nogil:
    cdef double other = -INF64 if x == 0 else NAN64
    result = result if x > 0 else other
    return x if x == INF64 else result


cdef inline double log_sum_f64(double k, double f) noexcept nogil:
    """Return log(2**k (1 + f))."""
    return add_product_f64(
        k, 0.6931471805598903, f + add_product_f64(k, 5.497923018708371e-14, log_tail_f64(f)))


cdef inline double log_inside_f64(double x) noexcept nogil:
    cdef double k, f = split_log_f64(x, &k)
    return log_sum_f64(k, f)


cdef inline double log_f64(double x) noexcept nogil:
    cdef double k, f = split_any_log_f64(x, &k)
    return finish_log_f64(x, log_sum_f64(k, f))


cdef inline double log_with_rest_f64(double k, double f, double rest) noexcept nogil:
    """Return log(2**k (1 + f)) + rest."""
    cdef double start = k * 0.6931471805598903, total = start + f, lost = (start - total) + f
    return total + (lost + (log_tail_f64(f) + (k * 5.497923018708371e-14 + rest)))


cdef inline double entr_f64(double x) noexcept nogil:
    return 0. if x == 0 else (-x * log_f64(x) if x >= 0 else (-INF64 if x < 0 else x))


cdef inline double logit_f64(double x) noexcept nogil:
    cdef double k, below = 1 - x, below_low = (1 - below) - x, q = x / below
    cdef double rest = fma_f64(-q, below, x) - q * below_low
    cdef double f = split_any_log_f64(q, &k)
    return finish_log_f64(q, log_with_rest_f64(k, f, rest * (4 - 4 * x)))


cdef inline double log1p_f64(double x) noexcept nogil:
    # With the rounding error of 1 + x.
    cdef double y = 1 + x, part = y - x, error = (x - (y - part)) + (1 - part)
    cdef double k, f = split_log_f64(y, &k)
    cdef double result = log_with_rest_f64(k, f, error / y)
    return copysign(finish_log_f64(y, result), x) if y > 0 else finish_log_f64(y, result)


cdef inline double log1p_sum_f64(double x, double low, double doublings) noexcept nogil:
    """Return log(2**doublings (1 + x + low)), x >= 0."""
    cdef double y = 1 + x, part = y - x, error = (x - (y - part)) + (1 - part)
    cdef double k, f = split_log_f64(y, &k)
    return log_with_rest_f64(k + doublings, f, (error + low) / y)


# The inverse hyperbolic functions are log(1 + u + low), where low is what u loses to rounding; from
# 2**27 on they are log(2 x).

cdef inline double acosh_f64(double x) noexcept nogil:
    # u = t + sqrt(t (t + 2)), t = x - 1
    cdef bint large = x > 134217728.
    cdef double t = x - 1, above = t + 2, part = above - t
    cdef double above_low = (t - (above - part)) + (2 - part)
    cdef double square = t * above, square_low = fma_f64(t, above, -square) + t * above_low
    cdef double root = sqrt(square), least = 2.2250738585072014e-308
    cdef double root_low = (fma_f64(-root, root, square) + square_low) / (root + root + least)
    cdef double u = t + root, taken = u - t
    cdef double low = ((t - (u - taken)) + (root - taken)) + root_low
    cdef double result = log1p_sum_f64(t if large else u, 0. if large else low, 1. if large else 0.)
    result = result if x >= 1 else NAN64
    return x if x == INF64 else result


cdef inline double asinh_f64(double x) noexcept nogil:
    # u = x + (sqrt(1 + x**2) - 1)
    cdef double size = fabs(x), square = size * size, square_low = fma_f64(size, size, -square)
    cdef double above = 1 + square, part = above - square
    cdef double above_low = ((square - (above - part)) + (1 - part)) + square_low
    cdef double root = sqrt(above)
    cdef double root_low = (fma_f64(-root, root, above) + above_low) / (root + root)
    cdef double rest = root - 1, u = size + rest, taken = u - size
    cdef double low = ((size - (u - taken)) + (rest - taken)) + root_low
    cdef bint large = size > 134217728.
    cdef double result = log1p_sum_f64(
        size - 1 if large else u, 0. if large else low, 1. if large else 0.)
    result = copysign(result, x)
    result = x if size < 3.7252902984619141e-9 else result
    return result if size < INF64 else x


cdef inline double atanh_f64(double x) noexcept nogil:
    # u = 2 x / (1 - x), halved
    cdef double size = fabs(x), below = 1 - size, below_low = (1 - below) - size
    cdef double u = (size + size) / below
    cdef double low = (fma_f64(-u, below, size + size) - u * below_low) / below
    cdef double result = 0.5 * log1p_sum_f64(u, low, 0)
    cdef double other = INF64 if size == 1 else NAN64
    result = copysign(result if size < 1 else other, x)
    return x if size < 3.7252902984619141e-9 else result


cdef inline double log2_sum_f64(double k, double f) noexcept nogil:
    return k + (f + add_product_f64(
        log_tail_f64(f), 1.4426950408889634, f * 0.44269504088896341))


cdef inline double log2_inside_f64(double x) noexcept nogil:
    cdef double k, f = split_log_f64(x, &k)
    return log2_sum_f64(k, f)


cdef inline double log2_f64(double x) noexcept nogil:
    cdef double k, f = split_any_log_f64(x, &k)
    return finish_log_f64(x, log2_sum_f64(k, f))


cdef inline double log10_f64(double x) noexcept nogil:
    cdef double k, f = split_any_log_f64(x, &k)
    cdef double low = log_tail_f64(f) * 0.4342944819032518 + (
        k * 2.8363394551044964e-14 - f * 0.065705518096748172)
    return finish_log_f64(x, k * 0.30102999566395283 + (0.5 * f + low))
