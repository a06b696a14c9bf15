# Special functions of real numbers, in double.
from libc.math cimport ceil, floor, fmin, fmod, pow

cdef extern from "<math.h>" nogil:
    const double INFINITY
    const double NAN


cdef inline double negative_power(double a, double s) noexcept nogil:
    """Return a**-s; small whole s are products."""
    cdef double inverse, result
    cdef int _k
    if not (s <= 8 and s == floor(s)):
        return pow(a, -s)
    inverse = 1 / a
    result = inverse
    for _k in range(<int>s - 1):
        result *= inverse
    return result


cdef inline double zeta_above_zero(double s, double a) noexcept nogil:
    # Euler and Maclaurin's formula, DLMF 25.11.7, from an `a` whose first term left out is small.
    cdef double[12] factors = [      # B_2j / (2j)!
        0.08333333333333333, -0.001388888888888889, 3.306878306878307e-05,
        -8.267195767195768e-07, 2.08767569878681e-08, -5.284190138687493e-10,
        1.3382536530684679e-11, -3.3896802963225827e-13, 8.586062056277845e-15,
        -2.174868698558062e-16, 5.5090028283602295e-18, -1.3954464685812522e-19]
    cdef double total = 0, power, rising, square, start = 7.2 + 0.72 * fmin(s, 200), first = a
    cdef double k = 0, part
    cdef int j
    while True:
        # What a = first + k loses counts s times.
        part = a - first
        power = (first - (a - part)) + (k - part)
        power = negative_power(a, s) * (1 - s * power / a)
        if not a < start:
            break
        total += power
        if power * a < 1e-17 * (s - 1) * total:     # as is the sum of those that follow
            return total
        k += 1
        a = first + k
    total += power * (a / (s - 1) + 0.5)
    square = 1 / (a * a)
    rising = s * power / a
    for j in range(12):
        total += factors[j] * rising
        rising *= (s + 2 * j + 1) * (s + 2 * j + 2) * square
    return total


cdef inline double hurwitz_zeta(double s, double a) noexcept nogil:
    cdef double below
    if s == 1:
        return INFINITY
    if not s > 1 or a != a:
        return NAN
    if a > 0:
        return 0 if a == INFINITY else zeta_above_zero(s, a)
    if a == floor(a):
        return INFINITY
    if s != floor(s):
        return NAN
    # The terms on the other side of zero are a zeta function too, without its own far end.
    below = zeta_above_zero(s, ceil(a) - a) - zeta_above_zero(s, 1 - a)
    return zeta_above_zero(s, a - floor(a)) + (below if fmod(s, 2) == 0 else -below)
