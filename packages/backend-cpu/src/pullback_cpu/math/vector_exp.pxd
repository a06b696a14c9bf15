# Exponential functions that vectorise: exp(x) is 2**k exp(r), |r| <= log(2) / 2.
from libc.math cimport copysign, copysignf, fabs, fabsf
from libc.stdint cimport uint32_t, uint64_t

from pullback_cpu.math.half cimport bits_of_float, float_of_bits
from pullback_cpu.math.vector_bits cimport *


# -- float32 --------------------------------------------------------------------------------------

# Adding one of these leaves a whole number in the last bits of the sum: k, k + 64, the exponent's
# bits of 2**k, of 2**(k - 1), or those of two factors of 2**k together. They are 1.5 * 2**23 ...
cdef enum:
    WHOLE = 12582912
    RAISED = 12582976
    ONE_FACTOR = 12583039
    HALF_FACTOR = 12583038
    TWO_FACTORS = 12583166


cdef inline float pow2_f32(uint32_t bits) noexcept nogil:
    return float_of_bits(bits << 23)


cdef inline float scale_f32(float x, uint32_t bits) noexcept nogil:
    # In two steps, as 2**k may be no normal number; only the second one rounds.
    cdef uint32_t half = bits >> 1
    return x * pow2_f32(half) * pow2_f32(bits - half)


cdef inline float at_least_f32(float x, float low) noexcept nogil:
    return low if x < low else x        # NaN stays


cdef inline float at_most_f32(float x, float high) noexcept nogil:
    return high if x > high else x


cdef inline float reduce_exp_f32(
        float x, float shift, uint32_t *bits, float *rest) noexcept nogil:
    """Return r and set the bits of a factor 2**k such that x = k log(2) + r + rest."""
    # 355 / 512 has so few bits that its product with k is exact.
    cdef float log2e = 1.44269504, high = 0.693359375, low = -2.12194440e-4
    cdef float sum_ = x * log2e + shift, n = sum_ - shift, near = x - n * high, r = near - n * low
    bits[0] = bits_of_float(sum_)
    rest[0] = (near - r) - n * low
    return r


cdef inline float exp_tail_f32(float r) noexcept nogil:
    """Return exp(r) - 1 - r."""
    return r * r * poly5_f32(      # exp_f32
        r, 0.49999994, 0.166665167, 0.0416680984, 0.00836919434, 0.0013839443)


cdef inline float exp_rest_f32(float r) noexcept nogil:
    """Return exp(r) for |r| <= log(2) / 2."""
    cdef float one = 1
    if not FUSED:       # the last product rounds: a small one
        return one + (r + exp_tail_f32(r))
    return poly7_f32(      # exp_f32
        r, one, one, 0.49999994, 0.166665167, 0.0416680984, 0.00836919434, 0.0013839443)


cdef inline float exp_inside_f32(float x) noexcept nogil:
    """Return exp(x), |x| <= 87: 2**k comes by an addition to the exponent."""
    cdef uint32_t bits
    cdef float rest, r = reduce_exp_f32(x, WHOLE, &bits, &rest)
    return float_of_bits(bits_of_float(exp_rest_f32(r)) + (bits << 23))


cdef inline float raised_exp_f32(float r, uint32_t bits) noexcept nogil:
    """Return 2**k exp(r) from the bits of k + 64, k <= 60; it may be subnormal. Not for NaN."""
    cdef float down = 5.42101086e-20
    return down * float_of_bits(bits_of_float(exp_rest_f32(r)) + (bits << 23))


cdef inline float exp_falling_f32(float x) noexcept nogil:
    """Return exp(x), x <= 40; anything for NaN."""
    cdef uint32_t bits
    cdef float rest, r = reduce_exp_f32(at_least_f32(x, -104), RAISED, &bits, &rest)
    return raised_exp_f32(r, bits)


cdef inline float exp_falling_parts_f32(float x, float *low) noexcept nogil:
    """As exp_falling_f32, and set what the result lacks."""
    cdef uint32_t bits
    cdef float down = 5.42101086e-20, one = 1
    cdef float rest, r = reduce_exp_f32(at_least_f32(x, -104), RAISED, &bits, &rest)
    cdef float tail = exp_tail_f32(r), high = one + r, lost = ((one - high) + r) + (tail + rest)
    cdef float total = high + lost
    low[0] = down * float_of_bits(bits_of_float(one) + (bits << 23)) * ((high - total) + lost)
    return down * float_of_bits(bits_of_float(total) + (bits << 23))


cdef inline float exp_f32(float x) noexcept nogil:
    cdef uint32_t bits
    cdef float clamped = at_most_f32(at_least_f32(x, -104), 89)
    cdef float rest, r = reduce_exp_f32(clamped, TWO_FACTORS, &bits, &rest)
    return scale_f32(exp_rest_f32(r), bits)


cdef inline float exp2_f32(float x) noexcept nogil:
    cdef float shift = TWO_FACTORS, one = 1, clamped = at_most_f32(at_least_f32(x, -151), 129)
    cdef float sum_ = clamped + shift, r = clamped - (sum_ - shift)
    cdef float factor = poly6_f32(     # exp2_f32
        r, 0.693147242, 0.240226552, 0.0555027239, 0.00961706322, 0.00134182326, 1.58199429e-4)
    return scale_f32(fma_f32(r, factor, one), bits_of_float(sum_))


cdef inline float expm1_f32(float x) noexcept nogil:
    # 2**k (1 + e) - 1 = (2**k - 1) + 2**k e, added with what the sums lose; halved, as
    # 2**128 is infinite, but not where halves of small numbers lose bits.
    cdef uint32_t bits
    cdef float clamped = at_most_f32(at_least_f32(x, -18), 89)
    cdef float rest, r = reduce_exp_f32(clamped, HALF_FACTOR, &bits, &rest)
    cdef float half = 0.5, two = 2, bound = 0.25, tail = exp_tail_f32(r) + rest
    cdef float scale = pow2_f32(bits), start = scale - half, high = start + scale * r
    cdef float low = ((start - high) + scale * r) + ((scale - start) - half)
    cdef float result = two * (high + (low + scale * tail))
    return copysignf(r + tail if fabsf(x) < bound else result, x)


cdef inline float sigmoid_f32(float x) noexcept nogil:
    # 1 / (1 + exp(-x)), the sum with what it loses. It is 2**64 times smaller, so that neither 2**k
    # nor the quotient of a large exponent leaves the range of normal numbers.
    cdef uint32_t bits
    cdef float one = 5.42101086e-20, unit = 1, zero = 0
    cdef float clamped = at_most_f32(at_least_f32(-x, -30), 104)
    cdef float rest, r = reduce_exp_f32(clamped, ONE_FACTOR, &bits, &rest)
    cdef float u = r + exp_tail_f32(r), scale = pow2_f32(bits - 64)
    cdef float start = scale + one, start_low = (scale - start) + one, total = start + scale * u
    cdef float low = ((start - total) + scale * u) + start_low
    cdef float quotient = unit / total
    # The first difference is exact where products are fused, and 0 elsewhere.
    cdef float lost = (unit - quotient * total if FUSED else zero) - quotient * low
    return one * (quotient + quotient * lost)


cdef inline float tanh_f32(float x) noexcept nogil:
    # A polynomial near 0, from there 1 - 2 / (exp(2 |x|) + 1), which rounds to 1 from 9.02 on. The
    # quotient is below 0.3 there, and its errors count little. Products that round before they are
    # added cost the polynomial some of its range.
    cdef uint32_t bits
    cdef float one = 1, two = 2, size = fabsf(x), square = x * x, rest
    cdef float bound = 0.9375 if FUSED else 0.875
    cdef float r = reduce_exp_f32(at_most_f32(size + size, 20), ONE_FACTOR, &bits, &rest)
    cdef float u = r + exp_tail_f32(r), scale = pow2_f32(bits)
    cdef float outer = one - two / (scale * u + (scale + one))
    cdef float inner = size + size * square * poly7_f32(       # tanh_f32
        square, -0.333333164, 0.133328199, -0.053915523, 0.0216095261, -0.00815885793,
        0.0024818799, -4.18139622e-4)
    return copysignf(inner if size < bound else outer, x)


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
    cdef double r = reduce_exp_wide(at_most_f32(fabsf(x), 100), &k), square = r * r
    cdef double up = pow2_f64(k - 1), down = pow2_f64(-k - 1)
    return copysignf(<float>(
        (up - down) * cosh_wide(square) + (up + down) * sinh_wide(r, square)), x)


cdef inline float cosh_f32(float x) noexcept nogil:
    cdef uint64_t k
    cdef double r = reduce_exp_wide(at_most_f32(fabsf(x), 100), &k), square = r * r
    cdef double up = pow2_f64(k - 1), down = pow2_f64(-k - 1)
    return <float>((up + down) * cosh_wide(square) + (up - down) * sinh_wide(r, square))


# -- float64 --------------------------------------------------------------------------------------

# As above: 1.5 * 2**52 ...
cdef enum:
    WHOLE_F64 = 6755399441055744
    ONE_FACTOR_F64 = 6755399441056767
    HALF_FACTOR_F64 = 6755399441056766
    TWO_FACTORS_F64 = 6755399441057790


cdef inline double scale_f64(double x, uint64_t bits) noexcept nogil:
    cdef uint64_t half = bits >> 1
    return x * double_of_bits(half << 52) * double_of_bits((bits - half) << 52)


cdef inline double at_least_f64(double x, double low) noexcept nogil:
    return low if x < low else x        # NaN stays


cdef inline double at_most_f64(double x, double high) noexcept nogil:
    return high if x > high else x


cdef inline double reduce_exp_f64(
        double x, double shift, uint64_t *bits, double *rest) noexcept nogil:
    """Return r and set the bits of a factor 2**k such that x = k log(2) + r + rest."""
    # The first part of log(2) has 42 bits: its product with k is exact.
    cdef double high = 0.6931471805598903, low = 5.497923018708371e-14
    cdef double sum_ = x * 1.4426950408889634 + shift, n = sum_ - shift
    cdef double near = x - n * high, r = near - n * low
    bits[0] = bits_of_double(sum_)
    rest[0] = (near - r) - n * low
    return r


cdef inline double exp_tail_f64(double r) noexcept nogil:
    """Return exp(r) - 1 - r."""
    return r * r * poly10_f64(     # exp_f64
        r, 0.50000000000000111, 0.16666666666666413, 0.041666666666525465, 0.0083333333334916996,
        0.0013888888945010603, 1.9841269517716542e-4, 2.4801491539470177e-5,
        2.7557571836269388e-6, 2.7630844832527685e-7, 2.5006096877673179e-8)


cdef inline double exp_rest_f64(double r) noexcept nogil:
    """Return exp(r) for |r| <= log(2) / 2."""
    return poly12_f64(     # exp_f64
        r, 1, 1, 0.50000000000000111, 0.16666666666666413, 0.041666666666525465,
        0.0083333333334916996, 0.0013888888945010603, 1.9841269517716542e-4, 2.4801491539470177e-5,
        2.7557571836269388e-6, 2.7630844832527685e-7, 2.5006096877673179e-8)


cdef inline double exp_inside_f64(double x) noexcept nogil:
    """Return exp(x), |x| <= 708."""
    cdef uint64_t bits
    cdef double rest, r = reduce_exp_f64(x, <double>WHOLE_F64, &bits, &rest)
    return double_of_bits(bits_of_double(exp_rest_f64(r)) + (bits << 52))


cdef inline double exp_f64(double x) noexcept nogil:
    cdef uint64_t bits
    cdef double clamped = at_most_f64(at_least_f64(x, -746), 710)
    cdef double rest, r = reduce_exp_f64(clamped, <double>TWO_FACTORS_F64, &bits, &rest)
    return scale_f64(exp_rest_f64(r), bits)


cdef inline double exp2_f64(double x) noexcept nogil:
    cdef double shift = <double>TWO_FACTORS_F64
    cdef double clamped = at_most_f64(at_least_f64(x, -1076), 1025)
    cdef double sum_ = clamped + shift, r = clamped - (sum_ - shift)
    return scale_f64(1 + r * poly12_f64(       # exp2_f64
        r, 0.69314718055994529, 0.24022650695910069, 0.055504108664823373, 0.0096181291076302498,
        0.0013333558146035969, 1.5403530388825873e-4, 1.5252734163739289e-5,
        1.3215491394339536e-6, 1.0177933838398633e-7, 7.0529246794964983e-9,
        4.4730536901515843e-10, 2.8761150236763963e-11), bits_of_double(sum_))


cdef inline double expm1_f64(double x) noexcept nogil:
    cdef uint64_t bits
    cdef double clamped = at_most_f64(at_least_f64(x, -38), 710)
    cdef double rest, r = reduce_exp_f64(clamped, <double>HALF_FACTOR_F64, &bits, &rest)
    cdef double tail = exp_tail_f64(r) + rest, scale = double_of_bits(bits << 52)
    cdef double start = scale - 0.5, high = start + scale * r
    cdef double low = ((start - high) + scale * r) + ((scale - start) - 0.5)
    cdef double result = 2 * (high + (low + scale * tail))
    return copysign(r + tail if fabs(x) < 0.25 else result, x)


cdef inline double sigmoid_f64(double x) noexcept nogil:
    cdef uint64_t bits
    cdef double one = 2.938735877055719e-39     # 2**-128
    cdef double clamped = at_most_f64(at_least_f64(-x, -60), 746)
    cdef double rest, r = reduce_exp_f64(clamped, <double>ONE_FACTOR_F64, &bits, &rest)
    cdef double u = r + exp_tail_f64(r), scale = double_of_bits((bits - 128) << 52)
    cdef double start = scale + one, start_low = (scale - start) + one, total = start + scale * u
    cdef double low = ((start - total) + scale * u) + start_low, quotient = 1 / total
    cdef double lost = (1 - quotient * total if FUSED else 0.) - quotient * low
    return one * (quotient + quotient * lost)


cdef inline double tanh_f64(double x) noexcept nogil:
    cdef uint64_t bits
    cdef double size = fabs(x), square = x * x, rest
    cdef double r = reduce_exp_f64(
        at_most_f64(size + size, 44), <double>ONE_FACTOR_F64, &bits, &rest)
    cdef double outer = 1 - 2 / (exp_rest_f64(r) * double_of_bits(bits << 52) + 1)
    cdef double inner = size + size * square * poly11_f64(     # tanh_f64
        square, -0.33333333333333298, 0.1333333333332658, -0.053968253963736591,
        0.0218694883851515, -0.0088632325895895685, 0.0035920919074003501,
        -0.0014555420317120162, 5.8844104704944462e-4, -2.3337258729239524e-4,
        8.3303256976786325e-5, -1.9486348203835234e-5)
    return copysign(inner if size < 0.55 else outer, x)


cdef inline double sinh_f64(double x) noexcept nogil:
    # From sinh(r) and cosh(r), as in sinh_f32; large parts are added with what their sums lose.
    # Quarters of 2**k and 2**-k, for results that nearly overflow; the series are Taylor's.
    cdef uint64_t bits
    cdef double size = fabs(x), rest, r = reduce_exp_f64(
        at_most_f64(size, 710.6), <double>WHOLE_F64, &bits, &rest)
    cdef double up = pow2_f64(bits - 2), shrunk = pow2_f64(0 - bits - 2)
    cdef double down = shrunk if size < 40 else 0., square = r * r
    cdef double odd = rest + r * square * poly6_f64(
        square, 1. / 6, 1. / 120, 1. / 5040, 1. / 362880, 1. / 39916800, 1. / 6227020800.)
    cdef double even = square * poly7_f64(
        square, 1. / 2, 1. / 24, 1. / 720, 1. / 40320, 1. / 3628800, 1. / 479001600,
        1. / 87178291200.)
    cdef double base = up - down, lost = (up - base) - down
    cdef double first = up * r, second = down * r, high = base + first, total = high + second
    lost = (lost + ((base - high) + first)) + ((high - total) + second)
    total = 2 * (total + (lost + add_product_f64(up + down, odd, base * even)))
    return x if size < 3.7252902984619141e-9 else copysign(total, x)
