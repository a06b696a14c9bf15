// Comparisons, element by element. gt and ge are lt and le of exchanged inputs.
#include "kernels/common/kernel.cuh"

#include "kernels/common/elementwise_driver.cuh"

#define COMPARISON(name, value) \
    BINARY_TO(name##_int, ints, bools, value) \
    BINARY_TO(name##_long, longs, bools, value) \
    BINARY_TO(name##_float, floats, bools, value) \
    BINARY_TO(name##_double, doubles, bools, value)

COMPARISON(eq, x == y)
COMPARISON(ne, x != y)
COMPARISON(lt, x < y)
COMPARISON(le, x <= y)
BINARY_TO(eq_complex, complexes, bools, x == y)
BINARY_TO(ne_complex, complexes, bools, x != y)
