# Special functions of real numbers, in double.
from libc.math cimport M_PI, ceil, exp, fabs, floor, fmod, fmin, log, pow, rint, sqrt, tan

cdef extern from "<math.h>" nogil:
    const double INFINITY
    const double NAN


cdef inline double digamma_near_root(double x) noexcept nogil:
    """Return digamma(x), 1 <= x <= 2, from its distance to the root, which is a sum of two."""
    cdef double[22] factors = [      # digamma
        0.951055876031833, -0.4236274212814606, 0.2405424842407291, -0.14840492305387545,
        0.09498872446107504, -0.061922133276834865, 0.040760833490091394, -0.026975796574677167,
        0.017907261013002485, -0.011908222594486269, 0.007926814022757944,
        -0.005279897032157209, 0.003520215166075181, -0.002345882608466892,
        0.0015497222412834471, -0.0010341721542690729, 7.471549236644356e-4,
        -4.940269517070925e-4, 1.8180196979897666e-4, -1.2910502790544807e-4,
        2.9645380165579564e-4, -1.9113350689135695e-4]
    # Even and odd powers apart: two short chains of products.
    cdef double u = x - 1.5, square = u * u, even = 0, odd = 0
    cdef int k
    for k in range(20, -1, -2):
        even = even * square + factors[k]
        odd = odd * square + factors[k + 1]
    return ((x - 1.4616321449683622) - 9.549995429965697e-17) * (even + u * odd)


cdef inline double digamma_f64(double x) noexcept nogil:
    # DLMF 5.5.4 reflects to x > 0, 5.5.2 takes x to a number between 1 and 2, and from 10 on 5.11.2
    # is the expansion.
    cdef double total = 0, square, series
    if x == 0:
        return -1 / x
    if x < 0:
        if x == floor(x):
            return NAN
        total = -M_PI / tan(M_PI * (x - rint(x)))     # exact, also next to a pole
        x = 1 - x
    if x < 10:
        if x < 1:
            return digamma_near_root(x + 1) + (total - 1 / x)
        while x > 2:
            x -= 1
            total += 1 / x
        return digamma_near_root(x) + total
    square = 1 / (x * x)
    series = square * (1. / 12 - square * (1. / 120 - square * (1. / 252 - square * (
        1. / 240 - square * (1. / 132 - square * (691. / 32760 - square / 12))))))
    return total + log(x) - 0.5 / x - series


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


cdef inline double bessel_i(int order, double x) noexcept nogil:
    # The series DLMF 10.25.2 for small x >= 0; from 20 on the expansion 10.40.1.
    cdef double quarter = x * x / 4, term = 1, total = 1
    cdef int k = 0
    if x != x:
        return x
    if x < 20:
        if order:
            term = total = x / 2
        while term > 1e-17 * total:
            k += 1
            term *= quarter / (k * (k + order))
            total += term
        return total
    while k < 40 and fabs(term) > 1e-17:
        k += 1
        term *= ((2. * k - 1) * (2 * k - 1) - 4 * order) / (8 * x * k)
        total += term
    return exp(x) / sqrt(2 * M_PI * x) * total


cdef inline double bessel_i0(double x) noexcept nogil:
    return bessel_i(0, fabs(x))


cdef inline double bessel_i1(double x) noexcept nogil:
    return -bessel_i(1, -x) if x < 0 else bessel_i(1, fabs(x))


cdef inline double erfinv_tail(double r) noexcept nogil:
    # The outer parts of Wichura's algorithm.
    if r <= 5:
        r -= 1.6
        return (((((((
            7.74545014278341407640e-4 * r + 2.27238449892691845833e-2) * r
            + 2.41780725177450611770e-1) * r + 1.27045825245236838258) * r
            + 3.64784832476320460504) * r + 5.76949722146069140550) * r
            + 4.63033784615654529590) * r + 1.42343711074968357734) / (((((((
            1.05075007164441684324e-9 * r + 5.47593808499534494600e-4) * r
            + 1.51986665636164571966e-2) * r + 1.48103976427480074590e-1) * r
            + 6.89767334985100004550e-1) * r + 1.67638483018380384940) * r
            + 2.05319162663775882187) * r + 1)
    r -= 5
    return (((((((
        2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r
        + 1.24266094738807843860e-3) * r + 2.65321895265761230930e-2) * r
        + 2.96560571828504891230e-1) * r + 1.78482653991729133580) * r
        + 5.46378491116411436990) * r + 6.65790464350110377720) / (((((((
        2.04426310338993978564e-15 * r + 1.42151175831644588870e-7) * r
        + 1.84631831751005468180e-5) * r + 7.86869131145613259100e-4) * r
        + 1.48753612908506148525e-2) * r + 1.36929880922735805310e-1) * r
        + 5.99832206555887937690e-1) * r + 1)


cdef inline double erfinv_f64(double x) noexcept nogil:
    # From the normal quantile: Wichura, algorithm AS 241, Applied Statistics 37(3), 1988.
    cdef double q = x / 2, r = 0.180625 - q * q, size = fabs(x)
    if fabs(q) <= 0.425:
        return 0.7071067811865476 * q * (((((((
            2509.0809287301226727 * r + 33430.575583588128105) * r
            + 67265.770927008700853) * r + 45921.953931549871457) * r
            + 13731.693765509461125) * r + 1971.5909503065514427) * r
            + 133.14166789178437745) * r + 3.3871328727963666080) / (((((((
            5226.4952788528545610 * r + 28729.085735721942674) * r
            + 39307.895800092710610) * r + 21213.794301586595867) * r
            + 5394.1960214247511077) * r + 687.18700749205790830) * r
            + 42.313330701600911252) * r + 1)
    if not size < 1:
        return x * INFINITY if size == 1 else NAN
    r = 0.7071067811865476 * erfinv_tail(sqrt(-log((1 - size) / 2)))
    return r if x > 0 else -r
