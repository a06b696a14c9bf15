# Parts of special functions, in double: what stands beyond their pieces, for one number.
#
# Sources: DLMF 10.17 (Bessel functions of large numbers), 10.8 and 10.31 (of small ones), 9.7
# (Airy).
from libc.math cimport INFINITY, NAN, cos, fabs, log, sin, sqrt
from libc.stdint cimport uint64_t

from pullback_cpu.math.pieces cimport *
from pullback_cpu.math.vector_bits cimport *
from pullback_cpu.math.vector_exp cimport (
    TWO_FACTORS_F64, at_least_f64, at_most_f64, exp_inside_f64, exp_rest_f64, reduce_exp_f64,
    scale_f64)
from pullback_cpu.math.vector_log cimport log_f64
from pullback_cpu.math.vector_trig cimport sin_quarters_f64

cdef extern from *:
    """
    #define FARTHEST_PHASE 5e20  /* of two doubles: beyond it too few digits follow the point */
    """
    const double FARTHEST_PHASE

cdef enum:      # which of several functions
    ODD = 1     # of order 1
    SCALED = 2
    SECOND = 4  # Y, not J


cdef inline double times_exp(double factor, double x) noexcept nogil:
    """Return factor exp(x), also where exp(x) alone leaves the range of doubles."""
    cdef uint64_t bits
    cdef double rest, clamped = at_most_f64(at_least_f64(x, -1400), 1400)
    cdef double r = reduce_exp_f64(clamped, <double>TWO_FACTORS_F64, &bits, &rest)
    return scale_f64((exp_rest_f64(r) + rest) * factor, bits)


cdef inline double small_k(
        int order, int scaled, const pieces *table, double x) noexcept nogil:
    """Return the function of x < 1, also of NaN: with a logarithm, DLMF 10.31."""
    cdef double first = other_row(table, 1, x, x), second = other_row(table, 2, x, x)
    cdef double logarithm = log_f64(x), value
    if order:
        value = add_product_f64(x * x, add_product_f64(logarithm, second, first), 1) / x
    else:
        value = add_product_f64(-logarithm, second, first)
    value = value * exp_inside_f64(x) if scaled else value
    value = value if x > 0 else NAN64
    return INF64 if x == 0 else value


cdef inline double far_bessel(
        int flags, const pieces *table, double x, double c, double s) noexcept nogil:
    """Return J or Y of x >= 25, given the cosine and the sine of x itself."""
    cdef double inverse = 1 / x, root = sqrt(inverse * 0.31830988618379067)
    cdef double even = other_row(table, 0, inverse, inverse)
    cdef double odd = other_row(table, 1, inverse, inverse) * inverse
    # cos and sin of x - (order / 2 + 1 / 4) pi, times sqrt(2)
    cdef double total = c + s, difference = s - c
    cdef double shifted_cos = difference if flags & ODD else total
    cdef double shifted_sin = -total if flags & ODD else difference
    if flags & SECOND:
        return root * add_product_f64(even, shifted_sin, odd * shifted_cos)
    return root * add_product_f64(even, shifted_cos, -odd * shifted_sin)


cdef inline double small_y(int order, const pieces *table, double x) noexcept nogil:
    """Return Y of x < 4, also of NaN: with a logarithm, DLMF 10.8.1."""
    cdef double value = other_row(table, 2, x, x) + log_f64(x) * other_row(table, 3, x, x)
    value = x * value - 0.63661977236758134 / x if order else value
    value = value if x > 0 else NAN64
    return -INF64 if x == 0 else value


cdef inline double airy_zeta(double x, double *low) noexcept nogil:
    """Return 2/3 x**(3/2), and set what it lacks."""
    cdef double root = sqrt(x), root_low = fma_f64(-root, root, x) / (2 * root + 1e-300)
    cdef double product = x * root, product_low = fma_f64(x, root, -product) + x * root_low
    cdef double value = product * 0.66666666666666663
    low[0] = fma_f64(product, 0.66666666666666663, -value) + (
        product * 3.7007434154171886e-17 + product_low * 0.66666666666666663)
    return value


cdef inline double far_airy(
        const pieces *left, const pieces *right, double x) noexcept nogil:
    """Return Ai of x < -8 or x >= 9: DLMF 9.7.5, 9.7.9; NaN where nothing of the phase is left."""
    cdef double size = fabs(x), low, zeta = airy_zeta(size, &low), inverse = 1 / zeta, c, s, turned
    cdef double root = sqrt(sqrt(size)), value
    if x > 0:
        value = other_row(right, 0, 1 / size, 1 / sqrt(size)) / root
        value = times_exp(value - value * low, -zeta)
        return value if x <= 110 else 0     # smaller than every number, and the sums overflow
    if zeta > FARTHEST_PHASE:
        return NAN64
    if zeta < 65536:
        c = sin_quarters_f64(zeta, 1)
        s = sin_quarters_f64(zeta, 0)
        turned = c - low * s
        s += low * c
    else:
        c = cos(zeta)
        s = sin(zeta)
        turned = c * cos(low) - s * sin(low)
        s = s * cos(low) + c * sin(low)
    # sin and cos of zeta + pi / 4, times sqrt(2)
    value = (s + turned) * other_row(left, 0, inverse, inverse)
    value -= (turned - s) * inverse * other_row(left, 1, inverse, inverse)
    return value * 0.39894228040143268 / root


cdef inline double far_airy_prime(double x) noexcept nogil:
    """Return the derivative of Ai of x < -3000: DLMF 9.7.10. NaN where far_airy is."""
    cdef double size = -x, low, zeta = airy_zeta(size, &low), turned, c = cos(zeta), s = sin(zeta)
    if zeta > FARTHEST_PHASE:
        return NAN64
    turned = c * cos(low) - s * sin(low)
    s = s * cos(low) + c * sin(low)
    # sin and cos of zeta - pi / 4, times sqrt(2)
    return sqrt(sqrt(size)) * 0.39894228040143268 * (
        (s - turned) * (1 + 0.043885030864197531 / zeta / zeta)
        + (s + turned) * 0.097222222222222222 / zeta)


cdef inline double erfinv_centre(double w) noexcept nogil:
    """Return erfinv(x) / x of w = -log(1 - x**2) <= 5."""
    cdef double u = w - 2.5
    return poly12_f64(     # erfinv_f64
        u, 1.501409351110792, 0.24664027674416708, -0.0041773177243853935,
        -0.0012527079078120326, 2.182502643518777e-4, -4.9960795951131883e-6,
        -3.4166196093998842e-6, 4.7872521211497122e-7, 1.3416813443039166e-8,
        -1.0861162943180098e-8, 9.0730049432057286e-10, poly11_f64(
            u, 1.1960364809250675e-10, -3.1102889301553243e-11, 9.127225045293165e-13,
            5.3606045398472389e-13, -7.6377683955814638e-14, -3.0277927375280165e-15,
            1.9299240645493286e-15, -1.1244671097208655e-16, -2.9273204330624314e-17,
            2.8874793333600061e-18, 2.4691789533319875e-19))


cdef inline double upper_quantile(double least) noexcept nogil:
    """Return the number above which a standard normal one is with this probability, < 0.002.

    The outer parts of Wichura, algorithm AS 241, Applied Statistics 37(3), 1988.
    """
    cdef double r
    if not least > 0:
        return INFINITY if least == 0 else NAN
    r = sqrt(-log(least))
    if r <= 5:
        r -= 1.6
        return poly8_f64(
            r, 1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550,
            3.64784832476320460504, 1.27045825245236838258, 2.41780725177450611770e-1,
            2.27238449892691845833e-2, 7.74545014278341407640e-4) / poly8_f64(
            r, 1, 2.05319162663775882187, 1.67638483018380384940, 6.89767334985100004550e-1,
            1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
            1.05075007164441684324e-9)
    r -= 5
    return poly8_f64(
        r, 6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580,
        2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
        2.71155556874348757815e-5, 2.01033439929228813265e-7) / poly8_f64(
        r, 1, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
        7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
        2.04426310338993978564e-15)
