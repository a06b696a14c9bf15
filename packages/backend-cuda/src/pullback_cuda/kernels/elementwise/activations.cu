// Elementwise kernels: activations of networks, and their derivatives.
//
// e^-|x| cannot overflow, and gives 1 / (1 + e^-x) and one less that without a cancellation.
#include "kernels/common/kernel.cuh"

#include "kernels/common/elementwise_driver.cuh"

DEVICE float power_of_e(float x) { return expf(x); }
DEVICE double power_of_e(double x) { return exp(x); }
DEVICE float log_of_one_and(float x) { return log1pf(x); }
DEVICE double log_of_one_and(double x) { return log1p(x); }
DEVICE float less_one(float x) { return expm1f(x); }
DEVICE double less_one(double x) { return expm1(x); }

template <class R>
DEVICE R magnitude(R x) {
    return x < 0 ? -x : x;
}

template <class R>
DEVICE R elu_of(R x) {
    return x > 0 ? x : less_one(x);
}

template <class R>
DEVICE R softplus_of(R x) {
    return x > 20 ? x : (x > 0 ? x : 0) + log_of_one_and(power_of_e(-magnitude(x)));
}

template <class R>
DEVICE R logaddexp_of(R x, R y) {
    R high = x < y ? y : x, low = x < y ? x : y;
    R found = high + log_of_one_and(power_of_e(low - high));
    return x == y && x - x != 0 ? x : found; // two infinities of one sign
}

// 1 / (1 + e^-x), and one less that.
template <class R>
struct shares {
    R share, rest;
    explicit DEVICE shares(R x) {
        R power = power_of_e(-magnitude(x)), scale = 1 / (1 + power);
        share = (x >= 0 ? 1 : power) * scale;
        rest = (x >= 0 ? power : 1) * scale;
    }
};

template <class R>
DEVICE R silu_of(R x) {
    return x * shares<R>(x).share;
}

template <class R>
DEVICE R silu_backward_of(R gradient, R x) {
    shares<R> found(x);
    return gradient * (found.share * (1 + x * found.rest));
}

// (1 + tanh(u)) / 2 is 1 / (1 + e^(-2 u)); here 2 u = 2 sqrt(2 / pi) (x + 0.044715 x^3).
#define FACTOR ((R)1.5957691216057308)
#define CUBIC ((R)0.07135481627260025)

template <class R>
DEVICE R gelu_tanh_of(R x) {
    return x * shares<R>(x * (FACTOR + CUBIC * (x * x))).share;
}

template <class R>
DEVICE R gelu_tanh_backward_of(R gradient, R x) {
    // Beyond 64 the derivative is 0 or 1, and squares may overflow.
    x = x > 64 ? 64 : x < -64 ? -64 : x;
    R square = CUBIC * (x * x);
    shares<R> found(x * (FACTOR + square));
    return gradient * (found.share * (1 + x * found.rest * (FACTOR + 3 * square)));
}

// How probable a normal number above `size` >= 0 is, with all its digits, and e^(-size^2 / 2).
struct normal_tail {
    float probability, power;
    explicit DEVICE normal_tail(float size) {
        // erfc(z) = exp(-z^2) q(t) / (z + 2) with t = 1 - 4 / (z + 2) and z = size / sqrt(2). The
        // square's rounding error matters where it is large. Coefficients: half of q's, a minimax
        // approximation.
        size = size > 14.4f ? 14.4f : size;
        float square = size * size, lost = fmaf(size, size, -square);
        float inverse = 1 / fmaf(size, 0.707106781f, 2.f), t = fmaf(-4.f, inverse, 1.f);
        float q = -2.33069746e-4f;
        q = fmaf(q, t, -3.79224715e-4f);
        q = fmaf(q, t, 1.49233278e-3f);
        q = fmaf(q, t, 3.22017982e-3f);
        q = fmaf(q, t, -0.0107432203f);
        q = fmaf(q, t, -0.0182179213f);
        q = fmaf(q, t, 0.139735103f);
        q = fmaf(q, t, -0.343580484f);
        q = fmaf(q, t, 0.510791361f);
        power = expf(-0.5f * square);
        power = fmaf(power, -0.5f * lost, power);
        probability = q * inverse * power;
    }
};

DEVICE float gelu_of(float x) {
    // x (1 - tail) or x tail. What is negative rounds to -0; -infinity times no probability is NaN.
    float size = fabsf(x) > 14.4f ? 14.4f : fabsf(x);
    return (x < 0 ? x * 0 : x) - size * normal_tail(size).probability;
}

DEVICE float gelu_backward_of(float gradient, float x) {
    normal_tail tail(fabsf(x));
    float share = x > 0 ? 1 - tail.probability : tail.probability;
    return gradient * (share + x * (0.3989422804f * tail.power));
}

#define SQRT_HALF 0.70710678118654752440

DEVICE double gelu_of(double x) { return x * (0.5 * erfc(-x * SQRT_HALF)); }
DEVICE double gelu_backward_of(double gradient, double x) {
    return gradient * (0.5 * erfc(-x * SQRT_HALF) + x * (0.3989422804014327 * exp(-0.5 * x * x)));
}

#define ACTIVATION(name) \
    UNARY(name##_float, floats, name##_of(x)) \
    UNARY(name##_double, doubles, name##_of(x))
#define OF_TWO(name) \
    BINARY(name##_float, floats, name##_of(x, y)) \
    BINARY(name##_double, doubles, name##_of(x, y))

ACTIVATION(elu)
ACTIVATION(gelu)
ACTIVATION(gelu_tanh)
ACTIVATION(silu)
ACTIVATION(softplus)
OF_TWO(gelu_backward)
OF_TWO(gelu_tanh_backward)
OF_TWO(logaddexp)
OF_TWO(silu_backward)
