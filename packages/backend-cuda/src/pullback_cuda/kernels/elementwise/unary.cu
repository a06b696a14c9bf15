// Elementwise kernels of one input: arithmetic.
#include "kernels/common/kernel.cuh"

#include "kernels/common/elementwise_driver.cuh"

// Integers wrap around: signed arithmetic would be undefined where it does.
DEVICE int32_t negative(int32_t x) { return (int32_t)(0u - (uint32_t)x); }
DEVICE int64_t negative(int64_t x) { return (int64_t)((uint64_t)0 - (uint64_t)x); }
DEVICE int32_t squared(int32_t x) { return (int32_t)((uint32_t)x * (uint32_t)x); }
DEVICE int64_t squared(int64_t x) { return (int64_t)((uint64_t)x * (uint64_t)x); }

#define INTEGERS(name, value) \
    UNARY(name##_int, ints, value) \
    UNARY(name##_long, longs, value)
#define FLOATING(name, value) \
    UNARY(name##_float, floats, value) \
    UNARY(name##_double, doubles, value)
#define COMPLEX(name, value) UNARY(name##_complex, complexes, value)
#define QUESTION(name, real, of_complex) \
    UNARY_TO(name##_float, floats, bools, real) \
    UNARY_TO(name##_double, doubles, bools, real) \
    UNARY_TO(name##_complex, complexes, bools, of_complex)

INTEGERS(abs, x < 0 ? negative(x) : x)
UNARY(abs_float, floats, fabsf(x))
UNARY(abs_double, doubles, fabs(x))
UNARY_TO(abs_complex, complexes, parts, absolute(x))

INTEGERS(bitwise_not, ~x)

UNARY(ceil_float, floats, ceilf(x))
UNARY(ceil_double, doubles, ceil(x))
UNARY(floor_float, floats, floorf(x))
UNARY(floor_double, doubles, floor(x))
UNARY(round_float, floats, rintf(x))
UNARY(round_double, doubles, rint(x))
UNARY(trunc_float, floats, truncf(x))
UNARY(trunc_double, doubles, trunc(x))

COMPLEX(conj, conjugate(x))

QUESTION(isfinite, x - x == 0, x.real - x.real == 0 && x.imag - x.imag == 0)
QUESTION(isnan, x != x, is_nan(x))
QUESTION(logical_not, x == 0, x.real == 0 && x.imag == 0)
UNARY_TO(logical_not_int, ints, bools, x == 0)
UNARY_TO(logical_not_long, longs, bools, x == 0)

INTEGERS(neg, negative(x))
FLOATING(neg, -x)
COMPLEX(neg, -x)

FLOATING(reciprocal, 1 / x)
COMPLEX(reciprocal, one_over(x))

INTEGERS(relu, x < 0 ? 0 : x)
FLOATING(relu, x < 0 ? 0 : x)

// The sign of NaN is 0.
INTEGERS(sign, (x > 0) - (x < 0))
FLOATING(sign, (x > 0) - (x < 0))

INTEGERS(square, squared(x))
FLOATING(square, x *x)
COMPLEX(square, x *x)

// Powers to a number that have a shorter way.
FLOATING(cube, x * x * x)
FLOATING(inverse_square, 1 / (x * x))
