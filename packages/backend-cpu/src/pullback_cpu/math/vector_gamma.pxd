# The logarithm of the gamma function, that vectorises: float32 numbers in double.
from libc.math cimport fabs, rint

from pullback_cpu.math.vector_bits cimport *
from pullback_cpu.math.vector_exp cimport at_most_f64
from pullback_cpu.math.vector_log cimport log_inside_f64


cdef inline double lgamma_from_half(double x) noexcept nogil:
    """Return log(gamma(x)) of a finite x >= 0.5, with the digits of a float32."""
    # Below 8, gamma(x) = gamma(x + 8) / (x (x + 1) ... (x + 7)); there is Stirling's series, DLMF
    # 5.11.1.
    cdef bint below = x < 8
    cdef double z = at_most_f64(x, 8), two = z * (z + 7)
    # z (z + 7), (z + 1) (z + 6), ... differ by 6, 4, 2.
    cdef double product = (two * (two + 6)) * ((two + 10) * (two + 12))
    cdef double y = x + 8 if below else x, inverse = 1 / y
    cdef double series = inverse * poly4_f64(
        inverse * inverse, 1. / 12, -1. / 360, 1. / 1260, -1. / 1680)
    cdef double wide = (y - 0.5) * log_inside_f64(y) - y + (0.91893853320467274 + series)
    # The zeros at 1 and 2: DLMF 5.7.3, and log(1 + t) more.
    cdef bint second = x > 1.5
    cdef double t = x - (2. if second else 1.), added = 1. if second else 0.
    cdef double near = t * (poly5_f64(
        t, -0.57721566490153286, 0.82246703342411322, -0.40068563438653143, 0.27058080842778455,
        -0.20738555102867399) + added * poly5_f64(t, 1, -0.5, 1. / 3, -0.25, 0.2))
    wide = wide - log_inside_f64(product if below else 1.)
    return near + 0. if fabs(t) < 0.00390625 else wide      # -0 becomes 0


cdef inline float lgamma_f32(float x) noexcept nogil:
    # gamma(x) gamma(1 - x) = pi / sin(pi x), DLMF 5.5.3. Beyond 2**23 negative numbers are whole.
    cdef double wide = x, whole = rint(wide), r = fabs(wide - whole), square = r * r
    cdef double sine = r * poly8_f64(
        square, 3.14159265358979324, -5.16771278004997003, 2.55016403987734544,
        -0.599264529320792077, 0.0821458866111282288, -0.00737043094571435078,
        4.66302805767612564e-4, -2.19153534478302158e-5)
    cdef bint turned = wide < 0.5
    cdef bint pole = turned & (r == 0)
    cdef double found = lgamma_from_half(1 - wide if turned else wide)
    cdef double mirrored = 1.14472988584940017 - log_inside_f64(1. if r == 0 else sine) - found
    cdef float result = <float>(mirrored if turned else found)
    result = INF32 if pole | (fabs(wide) == INF64) else result
    return x if x != x else result
