# Activations of networks, and their derivatives, that vectorise.
#
# e**-|x| cannot overflow, and gives 1 / (1 + e**-x) and one less that without a cancellation. The
# normal distribution's density is one from the product x * x without its rounding error.
from libc.math cimport M_SQRT1_2, copysign, copysignf, erfc, exp, fabs, fabsf

from pullback_cpu.kernels.vector_bits cimport fma_f32
from pullback_cpu.kernels.vector_exp cimport (
    at_most_f32, at_most_f64, exp_f32, exp_f64, expm1_f32, expm1_f64)
from pullback_cpu.kernels.vector_log cimport log1p_f64, log_f32


cdef inline float elu_f32(float x) noexcept nogil:
    cdef float below = expm1_f32(x)
    return x if x > 0 else below


cdef inline double elu_f64(double x) noexcept nogil:
    cdef double below = expm1_f64(x)
    return x if x > 0 else below


cdef inline float log1p_of_power_f32(float x) noexcept nogil:
    """Return log(1 + e**x) for x <= 0, with what the sum loses."""
    cdef float one = 1, power = exp_f32(x), total = one + power
    return log_f32(total) + (power - (total - one)) / total


cdef inline float softplus_f32(float x) noexcept nogil:
    cdef float zero = 0, found = (x if x > 0 else zero) + log1p_of_power_f32(-fabsf(x))
    return x if x > 20 else found


cdef inline double softplus_f64(double x) noexcept nogil:
    cdef double found = log1p_f64(exp_f64(x))
    return x if x > 20 else found


cdef inline float logaddexp_f32(float x, float y) noexcept nogil:
    cdef float high = y if x < y else x, low = x if x < y else y
    cdef float found = high + log1p_of_power_f32(low - high)
    return x if (x == y) & (x - x != 0) else found      # two infinities of one sign


cdef inline double logaddexp_f64(double x, double y) noexcept nogil:
    cdef double high = y if x < y else x, low = x if x < y else y
    cdef double found = high + log1p_f64(exp_f64(low - high))
    return x if (x == y) & (x - x != 0) else found


# -- x times a share of it ------------------------------------------------------------------------

cdef inline float share_f32(float x, float *rest) noexcept nogil:
    """Return 1 / (1 + e**-x), and 1 less that."""
    cdef float one = 1, power = exp_f32(-fabsf(x)), scale = one / (one + power)
    rest[0] = (power if x >= 0 else one) * scale
    return (one if x >= 0 else power) * scale


cdef inline double share_f64(double x, double *rest) noexcept nogil:
    cdef double power = exp_f64(-fabs(x)), scale = 1 / (1 + power)
    rest[0] = (power if x >= 0 else 1) * scale
    return (1 if x >= 0 else power) * scale


cdef inline float silu_f32(float x) noexcept nogil:
    cdef float rest
    return x * share_f32(x, &rest)


cdef inline double silu_f64(double x) noexcept nogil:
    cdef double rest
    return x * share_f64(x, &rest)


cdef inline float silu_backward_f32(float grad, float x) noexcept nogil:
    cdef float one = 1, rest, share = share_f32(x, &rest)
    return grad * (share * (one + x * rest))


cdef inline double silu_backward_f64(double grad, double x) noexcept nogil:
    cdef double rest, share = share_f64(x, &rest)
    return grad * (share * (1 + x * rest))


# (1 + tanh(u)) / 2 is 1 / (1 + e**(-2 u)); here 2 u = 2 sqrt(2 / pi) (x + 0.044715 x**3).

cdef inline float gelu_tanh_f32(float x) noexcept nogil:
    cdef float factor = 1.5957691216057308, cubic = 0.07135481627, rest
    return x * share_f32(x * (factor + cubic * (x * x)), &rest)


cdef inline double gelu_tanh_f64(double x) noexcept nogil:
    cdef double rest
    return x * share_f64(x * (1.5957691216057308 + 0.07135481627260025 * (x * x)), &rest)


cdef inline float gelu_tanh_backward_f32(float grad, float x) noexcept nogil:
    cdef float factor = 1.5957691216057308, cubic = 0.07135481627, three = 3, one = 1, rest
    # Beyond 64 the slope is 0 or 1, and squares may overflow.
    x = copysignf(at_most_f32(fabsf(x), 64), x)
    cdef float square = cubic * (x * x), share = share_f32(x * (factor + square), &rest)
    return grad * (share * (one + x * rest * (factor + three * square)))


cdef inline double gelu_tanh_backward_f64(double grad, double x) noexcept nogil:
    x = copysign(at_most_f64(fabs(x), 64), x)
    cdef double rest, square = 0.07135481627260025 * (x * x)
    cdef double share = share_f64(x * (1.5957691216057308 + square), &rest)
    return grad * (share * (1 + x * rest * (1.5957691216057308 + 3 * square)))


cdef inline float normal_f32(float x, float *power) noexcept nogil:
    """Return how probable a normal number of at most x is, and e**(-x * x / 2)."""
    # erfc(z) = exp(-z**2) Q(t) / (z + 3) as in vector_erf.pxd, for z = |x| / sqrt(2).
    cdef float one = 1, three = 3, half = 0.5, root = M_SQRT1_2
    cdef float size = at_most_f32(fabsf(x), 15), z = size * root
    cdef float square = size * size, lost = fma_f32(size, size, -square)
    cdef float inverse = one / (z + three), t = (z - three) * inverse, tail
    cdef float[12] q = [
        1.0740069, -0.88339447, 0.59022838, -0.31046724, 0.11952774, -0.026827775,
        -0.0012124323, 0.0030376205, -5.4630775e-4, -2.8709655e-4, 9.6750976e-5, 3.9947996e-5]
    power[0] = exp_f32(-half * square) * (one - half * lost)
    tail = q[11]
    tail = tail * t + q[10]
    tail = tail * t + q[9]
    tail = tail * t + q[8]
    tail = tail * t + q[7]
    tail = tail * t + q[6]
    tail = tail * t + q[5]
    tail = tail * t + q[4]
    tail = tail * t + q[3]
    tail = tail * t + q[2]
    tail = tail * t + q[1]
    tail = half * (tail * t + q[0]) * inverse * power[0]
    return one - tail if x > 0 else tail


cdef inline float gelu_f32(float x) noexcept nogil:
    cdef float power
    return x * normal_f32(x, &power)


cdef inline double gelu_f64(double x) noexcept nogil:
    return x * (0.5 * erfc(-x * M_SQRT1_2))


cdef inline float gelu_backward_f32(float grad, float x) noexcept nogil:
    cdef float power, density = 0.3989422804014327, share = normal_f32(x, &power)
    return grad * (share + x * (density * power))


cdef inline double gelu_backward_f64(double grad, double x) noexcept nogil:
    return grad * (0.5 * erfc(-x * M_SQRT1_2) + x * (0.3989422804014327 * exp(-0.5 * x * x)))
