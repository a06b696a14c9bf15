// Elementwise kernels of two inputs: arithmetic.
#include "kernels/common/kernel.cuh"

#include "kernels/common/elementwise_driver.cuh"

// Integers wrap around: signed arithmetic would be undefined where it does.
#define WRAPPING(name, operator) \
    BINARY(name##_int, ints, (int32_t)((uint32_t)x operator(uint32_t) y)) \
    BINARY(name##_long, longs, (int64_t)((uint64_t)x operator(uint64_t) y))
#define INTEGERS(name, value) \
    BINARY(name##_int, ints, value) \
    BINARY(name##_long, longs, value)
#define FLOATING(name, value) \
    BINARY(name##_float, floats, value) \
    BINARY(name##_double, doubles, value)
#define COMPLEX(name, value) BINARY(name##_complex, complexes, value)

WRAPPING(add, +)
FLOATING(add, x + y)
COMPLEX(add, x + y)

WRAPPING(sub, -)
FLOATING(sub, x - y)
COMPLEX(sub, x - y)

WRAPPING(mul, *)
FLOATING(mul, x *y)
COMPLEX(mul, x *y)

FLOATING(div, x / y)
COMPLEX(div, x / y)

// NaN wins, and of two zeros the first.
INTEGERS(maximum, x < y ? y : x)
FLOATING(maximum, x < y || y != y ? y : x)
INTEGERS(minimum, y < x ? y : x)
FLOATING(minimum, y < x || y != y ? y : x)

INTEGERS(bitwise_and, x &y)
INTEGERS(bitwise_or, x | y)
INTEGERS(bitwise_xor, x ^ y)

// The derivatives of sigmoid and tanh, from their results y.
DEVICE complex<double> derivative_of_sigmoid(complex<double> y) { return conjugate(y - y * y); }
DEVICE complex<double> derivative_of_tanh(complex<double> y) {
    return conjugate(complex<double>{1, 0} - y * y);
}

FLOATING(sigmoid_backward, x *(y * (1 - y)))
COMPLEX(sigmoid_backward, x *derivative_of_sigmoid(y))
FLOATING(tanh_backward, x * (1 - y * y))
COMPLEX(tanh_backward, x *derivative_of_tanh(y))
