// Elementwise kernels: special functions. float32 and smaller types go through double.
#include "kernels/common/kernel.cuh"

#include "math/special.cuh"

OUT_OF_LINE double log_gamma(double x) { return lgamma(x); }

#define SPECIAL(name, value) \
    UNARY(name##_float, floats, (float)value) \
    UNARY(name##_double, doubles, value)

SPECIAL(digamma, digamma_of(x))
SPECIAL(entr, entr_of(x))
SPECIAL(erfinv, erfinv_of(x))
SPECIAL(i0, bessel_i0(x))
SPECIAL(i1, bessel_i1(x))
SPECIAL(lgamma, log_gamma(x))
SPECIAL(logit, logit_of(x))
SPECIAL(ndtr, ndtr_of(x))
SPECIAL(sinc, sinc_of(x))

BINARY(zeta_float, floats, (float)hurwitz_zeta(x, y))
BINARY(zeta_double, doubles, hurwitz_zeta(x, y))
