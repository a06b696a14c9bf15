# Special functions of real numbers, in double.
from libc.math cimport ceil, floor, fmin, fmod, pow

from pullback_cpu.math.vector_bits cimport fma_f64

cdef extern from "<math.h>" nogil:
    const double INFINITY
    const double NAN


cdef inline double negative_power(double a, double s, double low) noexcept nogil:
    """Return (a + low)**-s; small whole s are products that keep what they lose."""
    cdef double power = a, lost = low, product, inverse
    cdef int _k
    if not (s <= 8 and s == floor(s)):
        return pow(a, -s) * (1 - s * low / a)
    for _k in range(<int>s - 1):
        product = power * a
        lost = fma_f64(power, a, -product) + (lost * a + power * low)
        power = product
    inverse = 1 / power
    if not 1e-290 < inverse < 1e290:
        return inverse
    return inverse + inverse * (fma_f64(-inverse, power, 1) - inverse * lost)


cdef inline double zeta_above_zero(double s, double a) noexcept nogil:
    # Euler and Maclaurin's formula, DLMF 25.11.7, from an `a` whose first term left out is small.
    cdef double[12] factors = [      # B_2j / (2j)!
        0.08333333333333333, -0.001388888888888889, 3.306878306878307e-05,
        -8.267195767195768e-07, 2.08767569878681e-08, -5.284190138687493e-10,
        1.3382536530684679e-11, -3.3896802963225827e-13, 8.586062056277845e-15,
        -2.174868698558062e-16, 5.5090028283602295e-18, -1.3954464685812522e-19]
    cdef double total = 0, lost = 0, power, rising, square, start = 7.2 + 0.72 * fmin(s, 200)
    cdef double first = a, k = 0, part, next_
    cdef int j
    while True:
        # What a = first + k loses counts s times.
        part = a - first
        power = negative_power(a, s, (first - (a - part)) + (k - part))
        if not a < start:
            break
        # The terms fall: after the first the sum is larger, and keeps what it loses.
        next_ = total + power
        lost += (total - next_) + power if k > 0 else 0.
        total = next_
        # Next to the total, what follows does not count: its sum is about power a / (s - 1).
        if total == INFINITY or power * a < 1e-17 * (s - 1) * total:
            return total + lost
        k += 1
        a = first + k
    rising = power * (a / (s - 1) + 0.5)
    next_ = total + rising
    lost += (total - next_) + rising if total > rising else (rising - next_) + total
    square = 1 / (a * a)
    rising = s * power / a
    for j in range(12):
        lost += factors[j] * rising
        rising *= (s + 2 * j + 1) * (s + 2 * j + 2) * square
    return next_ + lost


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
