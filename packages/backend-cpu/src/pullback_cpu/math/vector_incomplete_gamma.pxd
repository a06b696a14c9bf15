# Parts of the incomplete gamma functions that vectorise. A number is the sum of two doubles, a
# value and what it lacks, whose name ends in low: of about 100 bits logarithms and powers keep 60.
from libc.math cimport copysign, fabs, sqrt
from libc.stdint cimport uint64_t

from pullback_cpu.math.vector_bits cimport *
from pullback_cpu.math.vector_exp cimport WHOLE_F64
from pullback_cpu.math.vector_log cimport split_log_f64


cdef inline double sum_f64(double x, double y, double *low) noexcept nogil:
    cdef double total = x + y, part = total - x
    low[0] = (x - (total - part)) + (y - part)
    return total


cdef inline double log_of_quotient(double y, double y_low, double x, double *low) noexcept nogil:
    """Return log((y + y_low) / x) of normal numbers whose quotient is normal."""
    # The series of 2 atanh(s), DLMF 4.6.4, where 1 + f = (1 + s) / (1 - s).
    cdef double k, q = y / x, rest = (fma_f64(-q, x, y) + y_low) / y
    cdef double f = split_log_f64(q, &k), below = 2 + f, inverse = 1 / below, s = f * inverse
    cdef double s_low = inverse * ((fma_f64(-s, below, f) - s * (f - (below - 2)))
                                   + (rest * (1 + f)) * (1 - s))
    cdef double square = s * s, square_low = fma_f64(s, s, -square) + 2 * s * s_low
    cdef double third = square * 0.33333333333333331
    cdef double tail = fma_f64(square, 0.33333333333333331, -third) + (
        square * 1.8503717077085943e-17 + square_low * 0.33333333333333331)
    cdef double first = s + s, second = first * third, total = first + second, start
    tail += square * square * poly11_f64(
        square, 0.2, 0.14285714285714285, 0.1111111111111111, 0.090909090909090912,
        0.076923076923076927, 0.066666666666666666, 0.058823529411764705, 0.052631578947368418,
        0.047619047619047616, 0.043478260869565216, 0.04)
    tail = first * tail + fma_f64(first, third, -second) + 2 * s_low * (1 + third)
    tail += (first - total) + second
    start = sum_f64(k * 0.6931471805598903, total, low)
    low[0] += tail + k * 5.497923018708371e-14
    return start


cdef inline double exp_parts(double x, double x_low, double *low, double *n) noexcept nogil:
    """Return exp(x + x_low) / 2**n, for |x| < 1e8."""
    cdef double sum_ = x * 1.4426950408889634 + <double>WHOLE_F64, whole = sum_ - <double>WHOLE_F64
    cdef double near = x - whole * 0.6931471805598903, step = whole * 5.497923018708371e-14
    cdef double r = near - step, r_low = ((near - r) - step) + x_low
    cdef double half = 0.5 * r, square = half * r
    cdef double tail = r * square * poly12_f64(      # 2 / k!
        r, 0.33333333333333331, 0.083333333333333329, 0.016666666666666666,
        0.0027777777777777779, 3.9682539682539683e-4, 4.9603174603174603e-5,
        5.5114638447971785e-6, 5.5114638447971785e-7, 5.0104216770883444e-8,
        4.1753513975736203e-9, 3.2118087673643231e-10, 2.2941491195459452e-11)
    cdef double first = 1 + r, total = first + square
    tail += fma_f64(half, r, -square) + r_low * (total + tail)
    low[0] = (((1 - first) + r) + ((first - total) + square)) + tail
    n[0] = whole
    return total


cdef inline double factor_exponent(
        double a, double x, double y, double y_low, double steps, double logarithm, double log_low,
        double *low) noexcept nogil:
    """Return log(x**a exp(-x) sqrt(2 pi y) / gamma(y + 1)), given log(y / x).

    y = a + steps is at least 12, and less than 13 if there are steps.
    """
    # (y - x) - a log(y / x) - steps log(y), less Stirling's series, DLMF 5.11.1
    cdef double inverse = 1 / y, square = inverse * inverse, exponent, lost, part, other, rest
    cdef double series = inverse * poly8_f64(
        square, 0.083333333333333329, -0.0027777777777777779, 7.9365079365079365e-4,
        -5.9523809523809529e-4, 8.4175084175084171e-4, -0.0019175269175269176,
        0.00641025641025641, -0.02955065359477124)
    # log(y) is log(12.5) + 2 atanh(s).
    cdef double above = y + 12.5, above_low = (y - (above - 12.5)) + y_low, d = y - 12.5
    cdef double s = d / above, s_low = (fma_f64(-s, above, d) + (y_low - s * above_low)) / above
    cdef double s_square = s * s, high = sum_f64(2.5257286443082556, 2 * s, &other)
    other += 2 * s * s_square * poly6_f64(
        s_square, 0.33333333333333331, 0.2, 0.14285714285714285, 0.1111111111111111,
        0.090909090909090912, 0.076923076923076927)
    other += 2 * s_low - 1.7065574170429193e-16
    exponent = sum_f64(y, -x, &lost)
    lost += y_low - series
    part = a * logarithm
    lost -= fma_f64(a, logarithm, -part) + a * log_low
    exponent = sum_f64(exponent, -part, &rest)
    lost += rest
    part = steps * high
    lost -= fma_f64(steps, high, -part) + steps * other
    exponent = sum_f64(exponent, -part, &rest)
    return sum_f64(exponent, lost + rest, low)


cdef inline double finish_factor(
        double y, double y_low, double product, double product_low, double power,
        double power_low, double *low) noexcept nogil:
    """Return the product times the power over sqrt(2 pi y)."""
    cdef double part = product * power, high = 6.2831853071795862 * y
    cdef double part_low = fma_f64(product, power, -part) + (
        product * power_low + product_low * power)
    cdef double high_low = fma_f64(6.2831853071795862, y, -high) + (
        2.4492935982947064e-16 * y + 6.2831853071795862 * y_low)
    cdef double root = sqrt(high), inverse = 1 / root, result = part * inverse
    cdef double root_low = 0.5 * inverse * (fma_f64(-root, root, high) + high_low)
    low[0] = inverse * (fma_f64(-result, root, part) + (part_low - result * root_low))
    return result


cdef inline double scale_parts(double value, double n) noexcept nogil:
    """Return value 2**n, n >= -2000."""
    cdef uint64_t whole = bits_of_double(n + 6755399441057790.), half = whole >> 1
    return value * double_of_bits(half << 52) * double_of_bits((whole - half) << 52)


cdef inline double middle_share(double eta, double v) noexcept nogil:
    """Return the sum of Temme's expansion, DLMF 8.12.7, of 1 / v >= 200 and -0.36 <= eta <= 0.3."""
    # Its coefficients, 8.12.11, as polynomials.
    cdef double share = poly5_f64(
        eta, -8.618838201149221e-4, 7.841770266617914e-4, -2.9960646048851982e-4,
        -6.601844713605953e-6, 7.403874516332125e-5)
    share = add_product_f64(v, add_product_f64(v, -3.3445172460427604e-4, share), poly7_f64(
        eta, 6.494341325373297e-4, 2.2947141280170547e-4, -4.6918403823137964e-4,
        2.6777156236036334e-4, -7.579547739709782e-5, -1.2285682969709091e-6,
        1.2575660627774853e-5))
    share = add_product_f64(v, share, poly9_f64(
        eta, 0.0041335978836873405, -0.0026813271582210737, 7.716049046693777e-4,
        2.0091035216086553e-6, -1.073646102156937e-4, 5.2933462951276736e-5,
        -1.2795721353653832e-5, -1.0128588147356996e-7, 1.5822659946502545e-6))
    share = add_product_f64(v, share, poly11_f64(
        eta, -0.0018518518518521108, -0.003472222222227731, 0.0026455026456475156,
        -9.902263364097105e-4, 2.0576130409525326e-4, -4.0193518591994513e-7,
        -1.8098157552672743e-5, 7.650520777299182e-6, -1.6170629435747655e-6,
        -9.854427704018275e-9, 1.6105170340139855e-7))
    return add_product_f64(v, share, poly12_f64(
        eta, -0.3333333333333333, 0.08333333333333366, -0.01481481481481179,
        0.0011574074073351008, 3.527336857307521e-4, -1.7875513960765698e-4,
        3.9192646218816495e-5, -2.1855596064438056e-6, -1.8543546674676797e-6,
        8.309193433567074e-7, -1.7384607867767596e-7, 1.1353062738226303e-9))


cdef inline double middle_exponent(
        double a, double x, double logarithm, double log_low, double *low) noexcept nogil:
    """Return -a eta**2 / 2 = a - x - a log(a / x), given the logarithm."""
    cdef double lost, rest, part = a * logarithm, exponent = sum_f64(a, -x, &lost)
    lost -= fma_f64(a, logarithm, -part) + a * log_low
    exponent = sum_f64(exponent, -part, &rest)
    exponent = sum_f64(exponent, lost + rest, low)
    return -fabs(exponent)


cdef inline double middle_gamma(
        double a, double x, double side, double exponent, double low, double power,
        double *rest) noexcept nogil:
    """Return z and set a rest such that Q (of side 1), or P (of -1), is erfc(z) / 2 + rest.

    DLMF 8.12.3 and 8.12.4, given the exponent and its power.
    """
    cdef double v = 1 / a, z = sqrt(-exponent), sign = copysign(1, x - a)
    cdef double z_low = 0.5 * (fma_f64(-z, z, -exponent) - low) / (z + 1e-300)
    rest[0] = side * power * (
        0.3989422804014327 * sqrt(v) * middle_share(sign * z * sqrt(2 * v), v)
        - 0.56418958354775628 * sign * z_low)
    return side * sign * z
