# Special functions of real numbers, in double.
from libc.math cimport ceil, floor, fmin, fmod, pow

cdef extern from "<math.h>" nogil:
    const double INFINITY
    const double NAN


cdef inline double zeta_above_zero(double s, double a) noexcept nogil:
    # Euler and Maclaurin's formula, DLMF 25.11.7, from an `a` that its terms fall off at.
    cdef double[8] factors = [      # B_2j / (2j)!
        1. / 12, -1. / 720, 1. / 30240, -1. / 1209600, 1. / 47900160, -691. / 1307674368000.,
        1. / 74724249600., -3617. / 10670622842880000.]
    cdef double total = 0, power, rising, start = 12 + fmin(s, 200)
    cdef int j
    while a < start:
        total += pow(a, -s)
        a += 1
    power = pow(a, -s)
    total += power * (a / (s - 1) + 0.5)
    rising = s * power / a
    for j in range(8):
        total += factors[j] * rising
        rising *= (s + 2 * j + 1) * (s + 2 * j + 2) / (a * a)
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
