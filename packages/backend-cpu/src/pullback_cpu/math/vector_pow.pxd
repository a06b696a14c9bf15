# Powers and roots that vectorise.
from libc.math cimport fabs, fabsf, sqrt
from libc.stdint cimport uint32_t, uint64_t

from pullback_cpu.math.half cimport bits_of_float, float_of_bits
from pullback_cpu.math.vector_bits cimport *
from pullback_cpu.math.vector_exp cimport (
    TWO_FACTORS_F64, at_least_f32, at_least_f64, at_most_f32, at_most_f64, exp_tail_f64, exp_wide,
    reduce_exp_f64, scale_f64)
from pullback_cpu.math.vector_log cimport log_wide, split_any_log_f64


cdef inline float pow_f32(float x, float y) noexcept nogil:
    # exp(y log|x|). The logarithms of 0 and infinity are so large that any y but 0 leads to the
    # limit, and y is finite so that 1 stays 1.
    cdef float size = fabsf(x), large = 3.4e38, half = 0.5, one = 1
    cdef double logarithm = log_wide(size), power
    cdef float result, half_y = y * half
    cdef bint whole = rint_f32(y) == y
    cdef uint32_t top = 0x80000000, sign = bits_of_float(x) & top
    logarithm = -1e60 if size == 0 else logarithm
    logarithm = 1e60 if size == INF32 else logarithm
    power = logarithm * at_most_f32(at_least_f32(y, -large), large)
    power = -120. if power < -120 else power
    power = 100. if power > 100 else power
    result = <float>exp_wide(power)
    result = x + y if x != x else result
    # Negative x: NaN for a fraction y, and the sign of an odd one.
    sign = 0 if rint_f32(half_y) == half_y else sign
    sign = sign if whole else 0
    result = float_of_bits(bits_of_float(result) ^ sign)
    result = NAN32 if (x < 0) & (x > -INF32) & (not whole) else result
    return one if (x == one) | (y == 0) else result


cdef inline float hypot_f32(float x, float y) noexcept nogil:
    cdef double wide = x, high = y
    cdef float result = <float>sqrt(wide * wide + high * high)
    return INF32 if (fabsf(x) == INF32) | (fabsf(y) == INF32) else result


cdef inline double pow_f64(double x, double y) noexcept nogil:
    # As pow_f32, but the logarithm needs 66 bits: every number has a rest beside it. It is
    # k log(2) + s (2 + s**2 (2 / 3 + s**2 p(s**2))) where s = f / (2 + f).
    cdef double size = fabs(x), k, f = split_any_log_f64(size, &k)
    cdef double below = 2 + f, below_low = f - (below - 2), inverse = 1 / below, s = f * inverse
    cdef double s_low = (fma_f64(-s, below, f) - s * below_low) * inverse
    cdef double square = s * s, square_low = fma_f64(s, s, -square) + 2 * s * s_low
    cdef double third = 0.6666666666666666, u = square * third
    cdef double u_low = fma_f64(square, third, -u) + (
        square * 3.700743415417188e-17 + square_low * third + square * square * poly8_f64(
            square, 0.3999999999999998, 0.28571428571443847, 0.22222222217787349,
            0.18181818844386768, 0.153845583961528, 0.13336265918415405, 0.11675748980518054,
            0.11982038082149729))      # pow_f64
    cdef double factor = 2 + u, factor_low = ((2 - factor) + u) + u_low
    cdef double series = s * factor
    cdef double series_low = fma_f64(s, factor, -series) + (s * factor_low + s_low * factor)
    cdef double start = k * 0.6931471805598903, total = start + series
    cdef double total_low = ((start - total) + series) + (series_low + k * 5.497923018708371e-14)
    cdef double high = total + total_low, low = (total - high) + total_low
    # The power, in a range where the results are 0 or infinity at the ends.
    cdef double bounded, power, power_low
    cdef uint64_t bits, top = 0x8000000000000000, sign = bits_of_double(x) & top
    cdef bint whole = rint_f64(y) == y
    cdef double rest, r, tail, result, half_y = 0.5 * y
    high = -INF64 if size == 0 else high
    high = INF64 if size == INF64 else high
    bounded = at_most_f64(at_least_f64(y, -1e300), 1e300)
    power = bounded * high
    power_low = fma_f64(bounded, high, -power) + bounded * low
    power_low = power_low if fabs(power) < 800 else 0.
    power = at_most_f64(at_least_f64(power, -800), 800)
    r = reduce_exp_f64(power, <double>TWO_FACTORS_F64, &bits, &rest)
    tail = exp_tail_f64(r)
    result = scale_f64(1 + (r + (tail + (power_low + power_low * (r + tail)))), bits)
    result = x + y if x != x else result
    sign = 0 if rint_f64(half_y) == half_y else sign
    sign = sign if whole else 0
    result = double_of_bits(bits_of_double(result) ^ sign)
    result = NAN64 if (x < 0) & (x > -INF64) & (not whole) else result
    return 1. if (x == 1) | (y == 0) else result


cdef inline double rsqrt_f64(double x) noexcept nogil:
    # Newton's step from the rounded root, with what the product x y loses. Without an fma
    # instruction halves of large numbers overflow: there x is smaller.
    cdef double y = 1 / sqrt(x), near = y, product, lost, rest
    cdef bint large = not FUSED and x > 1e100
    x = x * 6.223015277861142e-61 if large else x       # 2**-200
    near = near * 1.2676506002282294e30 if large else near     # 2**100
    product = x * near
    lost = fma_f64(x, near, -product)
    rest = fma_f64(-lost, near, fma_f64(-product, near, 1))
    rest = y + 0.5 * y * rest
    return rest if rest == rest else y
