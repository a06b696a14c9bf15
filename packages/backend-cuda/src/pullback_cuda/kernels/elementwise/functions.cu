// Elementwise kernels: functions of real numbers.
#include "kernels/common/kernel.cuh"

#include "kernels/common/elementwise_driver.cuh"

#define FUNCTION(name, function) \
    UNARY(name##_float, floats, function##f(x)) \
    UNARY(name##_double, doubles, function(x))

// Long functions are compiled once and called, not inlined at every use.
#define LONG_FUNCTION(name, function) \
    OUT_OF_LINE float name##_of(float x) { return function##f(x); } \
    OUT_OF_LINE double name##_of(double x) { return function(x); } \
    UNARY(name##_float, floats, name##_of(x)) \
    UNARY(name##_double, doubles, name##_of(x))

#define LONG_BINARY_FUNCTION(name, function) \
    OUT_OF_LINE float name##_of(float x, float y) { return function##f(x, y); } \
    OUT_OF_LINE double name##_of(double x, double y) { return function(x, y); } \
    BINARY(name##_float, floats, name##_of(x, y)) \
    BINARY(name##_double, doubles, name##_of(x, y))

FUNCTION(acos, acos)
FUNCTION(asin, asin)
FUNCTION(atan, atan)
FUNCTION(cosh, cosh)
FUNCTION(erf, erf)
FUNCTION(erfc, erfc)
FUNCTION(exp, exp)
FUNCTION(exp2, exp2)
FUNCTION(expm1, expm1)
FUNCTION(log, log)
FUNCTION(log10, log10)
FUNCTION(log1p, log1p)
FUNCTION(log2, log2)
FUNCTION(sinh, sinh)
FUNCTION(sqrt, sqrt)
FUNCTION(tanh, tanh)

LONG_FUNCTION(acosh, acosh)
LONG_FUNCTION(asinh, asinh)
LONG_FUNCTION(atanh, atanh)
LONG_FUNCTION(cos, cos)
LONG_FUNCTION(sin, sin)
LONG_FUNCTION(tan, tan)

LONG_BINARY_FUNCTION(atan2, atan2)
LONG_BINARY_FUNCTION(hypot, hypot)
LONG_BINARY_FUNCTION(pow, pow)

UNARY(rsqrt_float, floats, rsqrtf(x))
UNARY(rsqrt_double, doubles, 1 / sqrt(x))

// With e^-|x|, which cannot overflow, no digit of a small result is lost.
template <class T>
DEVICE T sigmoid_of(T x, T power) {
    return (x < 0 ? power : 1) / (1 + power);
}

UNARY(sigmoid_float, floats, sigmoid_of(x, expf(-fabsf(x))))
UNARY(sigmoid_double, doubles, sigmoid_of(x, exp(-fabs(x))))
