# Exponential functions that vectorise: exp(x) is 2**k exp(r), |r| <= log(2) / 2.
from libc.stdint cimport int32_t, uint32_t, uint64_t

from pullback_cpu.kernels.half cimport bits_of_float, float_of_bits
from pullback_cpu.kernels.vector_bits cimport *


# -- float32 --------------------------------------------------------------------------------------

cdef inline float pow2_f32(int32_t k) noexcept nogil:
    return float_of_bits(<uint32_t>(k + 127) << 23)


cdef inline float scale_f32(float x, int32_t k) noexcept nogil:
    # In two steps, as 2**k may be no normal number; only the second one rounds.
    cdef int32_t half = k >> 1
    return x * pow2_f32(half) * pow2_f32(k - half)


cdef inline float clamp_f32(float x, float low, float high) noexcept nogil:
    x = low if x < low else x       # NaN stays
    return high if x > high else x


cdef inline float reduce_exp_f32(float x, int32_t *k, float *rest) noexcept nogil:
    """Return r and set k such that x = k log(2) + r + rest."""
    # The sum with 1.5 * 2**23 has k in its last bits. 355 / 512 has so few bits that its product
    # with k is exact.
    cdef float log2e = 1.44269504, shift = 12582912, high = 0.693359375, low = -2.12194440e-4
    cdef float sum_ = x * log2e + shift, n = sum_ - shift, near = x - n * high, r = near - n * low
    k[0] = <int32_t>(bits_of_float(sum_) - bits_of_float(shift))
    rest[0] = (near - r) - n * low
    return r


cdef inline float exp_tail_f32(float r) noexcept nogil:
    """Return exp(r) - 1 - r."""
    return r * r * poly5_f32(      # exp_f32
        r, 0.49999994, 0.166665167, 0.0416680984, 0.00836919434, 0.0013839443)


cdef inline float exp_f32(float x) noexcept nogil:
    cdef int32_t k
    cdef float rest, r = reduce_exp_f32(clamp_f32(x, -104, 89), &k, &rest), one = 1
    return scale_f32(one + (r + exp_tail_f32(r)), k)


cdef inline float exp2_f32(float x) noexcept nogil:
    cdef float shift = 12582912, one = 1, clamped = clamp_f32(x, -151, 129)
    cdef float sum_ = clamped + shift, r = clamped - (sum_ - shift)
    cdef int32_t k = <int32_t>(bits_of_float(sum_) - bits_of_float(shift))
    return scale_f32(one + r * poly6_f32(      # exp2_f32
        r, 0.693147242, 0.240226552, 0.0555027239, 0.00961706322, 0.00134182326, 1.58199429e-4), k)


cdef inline float expm1_f32(float x) noexcept nogil:
    # 2**k (1 + e) - 1 = (2**k - 1) + 2**k e, added with what the first sum loses; halved, as
    # 2**128 is infinite.
    cdef int32_t k
    cdef float rest, r = reduce_exp_f32(clamp_f32(x, -18, 89), &k, &rest)
    cdef float half = 0.5, two = 2, tail = exp_tail_f32(r) + rest, scale = pow2_f32(k - 1)
    cdef float start = scale - half, high = start + scale * r
    cdef float low = (start - high) + scale * r, result = two * (high + (low + scale * tail))
    return copysignf(r + tail if k == 0 else result, x)


cdef inline float sigmoid_f32(float x) noexcept nogil:
    # e / (1 + e) or 1 / (1 + e) where e = exp(-|x|), with the rounding errors of e and 1 + e.
    cdef int32_t k
    cdef float one = 1, zero = 0, size = fabsf(x)
    cdef float rest, r = reduce_exp_f32(clamp_f32(-size, -104, 0), &k, &rest)
    cdef float tail = exp_tail_f32(r), u = r + tail, high = one + u
    cdef float low = (u - (high - one)) + ((r - u) + tail)
    cdef float e = scale_f32(high, k), e_low = scale_f32(low, k), total = one + e
    cdef float total_low = ((one - total) + e) + e_low, inverse = one / total
    cdef float top = e if x < 0 else one, top_low = e_low if x < 0 else zero
    cdef float quotient = top * inverse
    return quotient + inverse * (
        fma_f32(-quotient, total, top) - quotient * total_low + top_low)


cdef inline float tanh_f32(float x) noexcept nogil:
    # m / (m + 2) where m = expm1(2 |x|), with the rounding errors of m and m + 2.
    cdef int32_t k
    cdef float one = 1, two = 2, size = fabsf(x)
    cdef float rest, r = reduce_exp_f32(clamp_f32(two * size, 0, 20), &k, &rest)
    cdef float tail = exp_tail_f32(r) + rest, scale = pow2_f32(k), start = scale - one
    cdef float high = start + scale * r, low = ((start - high) + scale * r) + scale * tail
    cdef float m = high + low, total = m + two, larger = m if m > two else two
    cdef float smaller = two if m > two else m
    cdef float total_low = (larger - total) + smaller, inverse = one / total
    cdef float m_low = (high - m) + low, quotient = m * inverse
    return copysignf(quotient + inverse * (
        fma_f32(-quotient, total, m) + (m_low - quotient * (total_low + m_low))), x)


# -- float32 in double, where that is shorter -----------------------------------------------------

cdef inline double pow2_f64(uint64_t k) noexcept nogil:
    return double_of_bits((k + 1023) << 52)


cdef inline double reduce_exp_wide(double x, uint64_t *k) noexcept nogil:
    cdef double shift = 6755399441055744, sum_ = x * 1.4426950408889634 + shift, n = sum_ - shift
    k[0] = bits_of_double(sum_)     # the bits of 1.5 * 2**52 leave it in pow2_f64
    return (x - n * 0.6931471805598903) - n * 5.497923018708371e-14


cdef inline double exp_wide(double x) noexcept nogil:
    """Return exp(x) with 34 bits, for |x| < 700."""
    cdef uint64_t k
    cdef double r = reduce_exp_wide(x, &k)
    return pow2_f64(k) * (1 + r * (1 + r * poly6_f64(      # exp_wide
        r, 0.50000000676541334, 0.16666665872351544, 0.041666295100195302, 0.0083334963031578523,
        0.0013944646709882237, 1.9790733295693892e-4)))


cdef inline double sinh_wide(double r, double square) noexcept nogil:
    return r * (1 + square * poly3_f64(        # sinh_wide
        square, 0.16666666754045323, 0.0083332890981226461, 1.9904870964932754e-4))


cdef inline double cosh_wide(double square) noexcept nogil:
    return 1 + square * poly4_f64(             # cosh_wide
        square, 0.49999999999606054, 0.041666666987468175, 0.0013888807851523744,
        2.4882146688804255e-5)


cdef inline float sinh_f32(float x) noexcept nogil:
    # From sinh(r) and cosh(r), so that nothing cancels.
    cdef uint64_t k
    cdef double r = reduce_exp_wide(clamp_f32(fabsf(x), 0, 100), &k), square = r * r
    cdef double up = pow2_f64(k - 1), down = pow2_f64(-k - 1)
    return copysignf(<float>(
        (up - down) * cosh_wide(square) + (up + down) * sinh_wide(r, square)), x)


cdef inline float cosh_f32(float x) noexcept nogil:
    cdef uint64_t k
    cdef double r = reduce_exp_wide(clamp_f32(fabsf(x), 0, 100), &k), square = r * r
    cdef double up = pow2_f64(k - 1), down = pow2_f64(-k - 1)
    return <float>((up + down) * cosh_wide(square) + (up - down) * sinh_wide(r, square))
