# Circular functions that vectorise, and their inverses.
from libc.math cimport copysignf, fabsf, sqrtf
from libc.stdint cimport uint32_t, uint64_t

from pullback_cpu.math.half cimport bits_of_float, float_of_bits
from pullback_cpu.math.vector_bits cimport *


# -- sine, cosine, tangent of float32 -------------------------------------------------------------

# Without an fma instruction sine and cosine are faster in double.

cdef inline float sin_reduced_wide(double r, uint64_t turns) noexcept nogil:
    """Return the sine of r + turns * pi, |r| <= pi / 2."""
    cdef double square = r * r
    cdef double result = r * (1 + square * poly5_f64(      # sin_wide
        square, -0.16666666626139778, 0.0083333311084046249, -1.9840868197837526e-4,
        2.7525384269825376e-6, -2.3888912664166893e-8))
    return <float>double_of_bits(bits_of_double(result) ^ (turns << 63))


# pi in three parts, all positive so that -0 stays; the first two times n / 2 are exact, n < 2**20.
cdef inline double less_pi(double x, double n) noexcept nogil:
    return ((x - n * 3.1415926534682512) - n * 1.2154201012607932e-10) - n * 4.044532497591901e-21


cdef inline float sin_quarters_f32(float x, uint32_t quarters) noexcept nogil:
    """Return the sine of x + quarters * pi / 2, |x| < 2**16."""
    # r + low = x - n pi / 2, the first difference is exact.
    cdef float shift = 12582912, one = 1, half = 0.5, sum_ = x * <float>0.636619772 + shift
    cdef float n = sum_ - shift, near = fma_f32(-n, 1.57079637, x), step = n * <float>4.37113883e-8
    cdef float r = near + step, low = (near - r) + step
    low += fma_f32(n, 4.37113883e-8, -step) + n * <float>1.71512451e-15
    # With low in half the square, the cosine's last two steps are a product and a sum each.
    cdef float half_square = fma_f32(half * r, r, r * low)
    cdef float sine = r + fma_f32(r * half_square, poly3_f32(      # sin_f32
        half_square, -0.333333105, 0.0333287567, -0.001561463), low)
    cdef float cosine = fma_f32(half_square, fma_f32(half_square, poly3_f32(       # cos_f32
        half_square, 0.166666582, -0.0111098476, 3.90917237e-4), -one), one)
    cdef uint32_t turn = bits_of_float(sum_) + quarters
    cdef float result = cosine if turn & 1 else sine
    return float_of_bits(bits_of_float(result) ^ (turn >> 1 << 31))


cdef inline float sin_f32(float x) noexcept nogil:
    """Return the sine of x, |x| < 2**16."""
    cdef double wide = x, shift = 6755399441055744, sum_
    cdef float result
    if FUSED:
        result = sin_quarters_f32(x, 0)
        return x if x == 0 else result      # keeps -0
    sum_ = wide * 0.31830988618379067 + shift
    return sin_reduced_wide(less_pi(wide, sum_ - shift), bits_of_double(sum_))


cdef inline float cos_f32(float x) noexcept nogil:
    """Return the cosine of x, |x| < 2**16."""
    cdef double wide = x, shift = 6755399441055744, sum_
    if FUSED:
        return sin_quarters_f32(x, 1)
    sum_ = (wide * 0.31830988618379067 + 0.5) + shift       # the sine of x + pi / 2
    return sin_reduced_wide(less_pi(wide, (sum_ - shift) - 0.5), bits_of_double(sum_))


cdef inline float tan_f32(float x) noexcept nogil:
    """Return the tangent of x, |x| < 2**16."""
    # r = x - n pi / 2 in two floats; on the odd quarters the result is -1 / tan(r), divided with
    # its rest. The first product leaves an exact difference, the second one is split.
    cdef float shift = 12582912, one = 1, sum_ = x * <float>0.636619772 + shift, n = sum_ - shift
    cdef float near = fma_f32(-n, 1.57079637, x), step = n * <float>-4.37113883e-8
    cdef float step_low = fma_f32(n, -4.37113883e-8, -step) + n * <float>-1.71512451e-15
    cdef float r = near - step, part = r - near
    cdef float r_low = ((near - (r - part)) - (step + part)) - step_low
    cdef float square = r * r, tail = r * square * poly7_f32(      # tan_f32
        square, 0.333333492, 0.133326754, 0.0540589131, 0.0212862045, 0.0108274641, 9.8208453e-5,
        0.00437272014)
    cdef float tangent = r + tail, low = ((r - tangent) + tail) + r_low * (one + tangent * tangent)
    cdef float inverse = -one / tangent
    cdef float cotangent = inverse + inverse * (fma_f32(inverse, tangent, one) + inverse * low)
    cdef float least = 1.220703125e-4
    tangent = cotangent if bits_of_float(sum_) & 1 else tangent + low
    return x if fabsf(x) < least else tangent


# -- float64 --------------------------------------------------------------------------------------

cdef inline double less_quarters_f64(double x, double n, double *low) noexcept nogil:
    """Return r, and set low, such that r + low = x - n pi / 2."""
    cdef double first, step, second, part, lost, third, rest, r
    if FUSED:       # the first difference is exact
        first = fma_f64(-n, 1.5707963267948966, x)
        step = n * -6.123233995736766e-17
        r = first + step
        low[0] = ((first - r) + step) + (
            fma_f64(n, -6.123233995736766e-17, -step) + n * 1.4973849048591833e-33)
        return r
    # The products with the first parts of pi / 2 are exact.
    first = x - n * 1.5707963267341256
    step = n * 6.077100506303966e-11
    second = first - step
    part = second - first
    lost = (first - (second - part)) - (step + part)
    third = second - n * 2.0222662487111665e-21
    rest = lost + (((second - third) - n * 2.0222662487111665e-21) - n * 8.4784276603689e-32)
    r = third + rest
    low[0] = (third - r) + rest
    return r


cdef inline double sin_quarters_f64(double x, uint64_t quarters) noexcept nogil:
    """Return the sine of x + quarters * pi / 2, |x| < 2**16."""
    cdef double shift = 6755399441055744, sum_ = x * 0.63661977236758134 + shift
    cdef double low, r = less_quarters_f64(x, sum_ - shift, &low), square = r * r
    cdef double sine = r + (r * square * poly6_f64(        # sin_f64
        square, -0.1666666666666663, 0.0083333333333218407, -1.9841269829357951e-4,
        2.7557313538087702e-6, -2.5050734289372066e-8, 1.5895425805923755e-10) + low)
    cdef double cosine = 1 + (square * (square * poly6_f64(    # cos_f64
        square, 0.041666666666666595, -0.0013888888888873342, 2.4801587289002178e-5,
        -2.7557314217103431e-7, 2.0875705409951756e-9, -1.1358750223526008e-11) - 0.5) - r * low)
    cdef uint64_t turn = bits_of_double(sum_) + quarters, odd = 0 - (turn & 1)
    cdef uint64_t result = (bits_of_double(cosine) & odd) | (bits_of_double(sine) & ~odd)
    return double_of_bits(result ^ (turn >> 1 << 63))


cdef inline double sin_f64(double x) noexcept nogil:
    cdef double result = sin_quarters_f64(x, 0)
    return x if x == 0 else result      # keeps -0


cdef inline double cos_f64(double x) noexcept nogil:
    return sin_quarters_f64(x, 1)


# -- sin(pi x) / (pi x) ----------------------------------------------------------------------------

# With the nearest whole number n, r = x - n is exact, and the value is that of r, times
# (-1)**n r / x.

cdef inline float sinc_f32(float x) noexcept nogil:
    cdef float n = rint_f32(x), r = x - n, square = r * r, one = 1, half = 0.5, two = 2, zero = 0
    cdef float odd = n - two * rint_f32(half * n), share = one if n == zero else r / x
    cdef float value = one + square * poly5_f32(       # sinc_f32
        square, -1.64493406, 0.811742008, -0.190745384, 0.0261047427, -0.00221547973)
    value = value * share
    return zero + (value if odd == zero else -value)


cdef inline double sinc_f64(double x) noexcept nogil:
    cdef double n = rint_f64(x), r = x - n, square = r * r
    cdef double odd = n - 2 * rint_f64(0.5 * n), share = 1. if n == 0 else r / x
    cdef double value = 1 + square * poly8_f64(        # sinc_f64
        square, -1.6449340668482264, 0.81174242528334617, -0.19075182412167532,
        0.026147847807942624, -0.0023460809132893937, 1.4842791656514569e-4,
        -6.9722672785688489e-6, 2.4518325274528456e-7)
    value = value * share
    return 0 + (value if odd == 0 else -value)


# -- inverse functions of float32 -----------------------------------------------------------------

cdef inline float atan_f32(float x) noexcept nogil:
    # atan(z) is pi / 2 - atan(1 / z) for z > 1; the subtraction keeps what it loses. Of a sum of
    # two products the compiler may round either one first, and not the same in every loop: they
    # are spelled.
    cdef float size = fabsf(x), one = 1
    cdef float half_pi = 1.57079637, half_pi_low = -4.37113883e-8
    cdef float inverse = one / size, inverse_low = inverse * fma_f32(-size, inverse, one)
    cdef bint outside = size > one
    cdef float t = inverse if outside else size, square = t * t, cube = t * square
    cdef float factor = fma_f32(square, poly8_f32(      # atan_f32
        square, 0.199985296, -0.142640412, 0.109511733, -0.0840062723, 0.0579115339,
        -0.0311340168, 0.0108920624, -0.00178877695), -0.333332986)
    cdef float half = 0.5, derivative = add_product_f32(-half, square, one)  # about 1 / (1 + t**2)
    cdef float start = half_pi - t, lost = (half_pi - start) - t
    cdef float low = half_pi_low - add_product_f32(cube, factor, inverse_low * derivative)
    cdef float result = start + (lost + low) if outside else add_product_f32(cube, factor, t)
    return copysignf(half_pi if size == INF32 else result, x)


cdef inline float asin_tail_f32(float square) noexcept nogil:
    """Return asin(x) / x - 1 where square = x**2 <= 1/4."""
    return square * poly5_f32(     # asin_f32
        square, 0.166667521, 0.0749531016, 0.0454691052, 0.0241847392, 0.0421587005)


cdef inline float root_rest_f32(float x, float root) noexcept nogil:
    """Return what a rounded square root lacks, with three bits."""
    # The difference of the bits is about 1 / root.
    cdef float half = 0.5
    return fma_f32(-root, root, x) * (half * float_of_bits(0x7EF311C7 - bits_of_float(root)))


cdef inline float asin_f32(float x) noexcept nogil:
    # asin(z) is pi / 2 - 2 asin(sqrt((1 - z) / 2)) for z > 1/2.
    cdef float size = fabsf(x), half = 0.5, one = 1, two = 2
    cdef float half_pi = 1.57079637, half_pi_low = -4.37113883e-8
    cdef bint outer = size > half
    cdef float remaining = half - half * size, root = sqrtf(remaining)
    cdef float square = remaining if outer else size * size
    cdef float tail = asin_tail_f32(square), double_root = two * root
    cdef float start = half_pi - double_root, lost = (half_pi - start) - double_root
    cdef float rest = two * root_rest_f32(remaining, root) + double_root * tail
    cdef float result = start + (lost + (half_pi_low - rest))
    result = copysignf(result if outer else size + size * tail, x)
    return result if size <= one else NAN32


cdef inline float acos_f32(float x) noexcept nogil:
    cdef float size = fabsf(x), half = 0.5, one = 1, two = 2, zero = 0
    cdef float pi = 3.14159274, pi_low = -8.74227766e-8
    cdef bint outer = size > half
    cdef float remaining = half - half * size, root = sqrtf(remaining)
    cdef float square = remaining if outer else size * size, tail = asin_tail_f32(square)
    # base - large - small, or for x > 1/2 large + small
    cdef float double_root = two * root
    cdef float large = double_root if outer else x
    cdef float small = two * root_rest_f32(remaining, root) if outer else zero
    cdef float base = pi if outer else half * pi, base_low = pi_low if outer else half * pi_low
    cdef float start, lost, result
    small = small + large * tail
    start = base - large
    lost = (base - start) - large
    result = start + (lost + (base_low - small))
    result = large + small if x > half else result
    return result if size <= one else NAN32


cdef inline float atan2_f32(float y, float x) noexcept nogil:
    # The arc tangent of the smaller over the larger size, in double.
    cdef double size_x = fabsf(x), size_y = fabsf(y)
    cdef bint steep = size_y > size_x, both_zero = (x == 0) & (y == 0)
    cdef bint both_infinite = (size_x == INF64) & (size_y == INF64)
    cdef double larger = size_y if steep else size_x, smaller = size_x if steep else size_y
    cdef double t = smaller / larger, square, angle
    t = 1. if both_infinite else t
    t = 0. if both_zero else t
    square = t * t
    angle = t + t * square * poly10_f64(       # atan_wide
        square, -0.33333326902280014, 0.1999967122802554, -0.14279834452166226,
        0.11058232909784392, -0.088111259217892049, 0.067416753681036598,
        -0.044691033063092127, 0.022540784062604704, -0.0073183822243188352,
        0.0011138726410070646)
    angle = 1.5707963267948966 - angle if steep else angle
    angle = 3.141592653589793 - angle if bits_of_float(x) >> 31 else angle
    return copysignf(<float>angle, y)
