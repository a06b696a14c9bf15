# Activations of networks, and their derivatives, that vectorise.
#
# e**-|x| cannot overflow, and gives 1 / (1 + e**-x) and one less that without a cancellation. The
# normal distribution's density is one from the product x * x without its rounding error.
from libc.math cimport M_SQRT1_2, copysign, copysignf, erfc, exp, fabs, fabsf
from libc.stdint cimport uint32_t

from pullback_cpu.math.vector_bits cimport fma_f32, poly9_f32
from pullback_cpu.math.vector_exp cimport (
    RAISED, at_most_f32, at_most_f64, exp_f64, exp_falling_f32, exp_falling_parts_f32,
    expm1_f32, expm1_f64, raised_exp_f32, reduce_exp_f32)
from pullback_cpu.math.vector_log cimport log1p_f64, log_inside_f32


cdef inline float elu_f32(float x) noexcept nogil:
    cdef float below = expm1_f32(x)
    return x if x > 0 else below


cdef inline double elu_f64(double x) noexcept nogil:
    cdef double below = expm1_f64(x)
    return x if x > 0 else below


cdef inline float log1p_of_power_f32(float x) noexcept nogil:
    """Return log(1 + e**x) for x <= 0, with what the sum loses."""
    cdef float one = 1, power = exp_falling_f32(x), total = one + power
    cdef float found = log_inside_f32(total) + (power - (total - one)) / total
    return x if x != x else found


cdef inline float softplus_f32(float x) noexcept nogil:
    # max(x, 0) + log(1 + power), power = e**-|x|, with what the power and the sum lose.
    cdef float low, zero = 0, one = 1, half = 0.5, high = x if x > 0 else zero
    cdef float power = exp_falling_parts_f32(-fabsf(x), &low), total = high + power
    cdef float part = total - high, lost = (high - (total - part)) + (power - part)
    cdef float scaled = half * power, start = total - scaled * power
    lost = lost + ((total - start) - scaled * power) + low * (one - scaled)
    cdef float found = start + (lost + power * power * power * poly9_f32(      # softplus_f32
        power, 0.333330929, -0.249933109, 0.199263036, -0.162281319, 0.126786858, -0.085901536,
        0.0442804657, -0.0146722291, 0.00227408553))
    found = x if x != x else found
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
    cdef float one = 1, power = exp_falling_f32(-fabsf(x)), scale = one / (one + power)
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
    # Beyond 64 the derivative is 0 or 1, and squares may overflow.
    x = copysignf(at_most_f32(fabsf(x), 64), x)
    cdef float square = cubic * (x * x), share = share_f32(x * (factor + square), &rest)
    return grad * (share * (one + x * rest * (factor + three * square)))


cdef inline double gelu_tanh_backward_f64(double grad, double x) noexcept nogil:
    x = copysign(at_most_f64(fabs(x), 64), x)
    cdef double rest, square = 0.07135481627260025 * (x * x)
    cdef double share = share_f64(x * (1.5957691216057308 + square), &rest)
    return grad * (share * (1 + x * rest * (1.5957691216057308 + 3 * square)))


cdef inline float normal_tail_f32(float size, float *power) noexcept nogil:
    """Return how probable a normal number above 0 <= size < 14.5 is, and e**(-size * size / 2)."""
    # erfc(z) = exp(-z**2) Q(t) / (z + 2) as in vector_erf.pxd, for z = size / sqrt(2); half of Q.
    cdef uint32_t bits
    cdef float one = 1, two = 2, four = 4, half = 0.5, root = M_SQRT1_2
    cdef float square = size * size, lost = fma_f32(size, size, -square)
    cdef float inverse = one / (size * root + two)
    cdef float tail = poly9_f32(       # erfc_f32
        one - four * inverse, 0.510791361, -0.343580484, 0.139735103, -0.0182179213,
        -0.0107432203, 0.00322017982, 0.00149233278, -3.79224715e-4, -2.33069746e-4)
    cdef float rest, r = reduce_exp_f32(-half * square, RAISED, &bits, &rest)
    power[0] = raised_exp_f32(r - half * lost, bits)
    return tail * inverse * power[0]


cdef inline float gelu_f32(float x) noexcept nogil:
    # x (1 - tail) or x tail, without a choice. What is negative rounds to -0; -infinity times no
    # probability is NaN, as in torch.
    cdef float size = at_most_f32(fabsf(x), 14.4), zero = 0, power
    return (x * zero if x < 0 else x) - size * normal_tail_f32(size, &power)


cdef inline double gelu_f64(double x) noexcept nogil:
    return x * (0.5 * erfc(-x * M_SQRT1_2))


cdef inline float gelu_backward_f32(float grad, float x) noexcept nogil:
    cdef float power, density = 0.3989422804014327, one = 1
    cdef float tail = normal_tail_f32(at_most_f32(fabsf(x), 14.4), &power)
    cdef float share = one - tail if x > 0 else tail
    return grad * (share + x * (density * power))


cdef inline double gelu_backward_f64(double grad, double x) noexcept nogil:
    return grad * (0.5 * erfc(-x * M_SQRT1_2) + x * (0.3989422804014327 * exp(-0.5 * x * x)))
