// Elementwise kernels: functions of complex numbers.
#include "kernels/common/kernel.cuh"

#include "math/complex_functions.cuh"

#define COMPLEX(name, value) UNARY(name##_complex, complexes, value)

#define LOG2_E 1.44269504088896340736
#define LOG10_E 0.43429448190325182765

COMPLEX(acos, acos_of(x))
COMPLEX(acosh, acosh_of(x))
COMPLEX(asin, asin_of(x))
COMPLEX(asinh, asinh_of(x))
COMPLEX(atan, atan_of(x))
COMPLEX(atanh, atanh_of(x))
COMPLEX(cos, cos_of(x))
COMPLEX(cosh, cosh_of(x))
COMPLEX(exp, exp_of(x))
COMPLEX(exp2, exp_of(x *LOG_2))
COMPLEX(expm1, expm1_of(x))
COMPLEX(log, log_of(x))
COMPLEX(log10, log_of(x) * LOG10_E)
COMPLEX(log1p, log1p_of(x))
COMPLEX(log2, log_of(x) * LOG2_E)
COMPLEX(rsqrt, one_over(sqrt_of(x)))
COMPLEX(sigmoid, sigmoid_of(x))
COMPLEX(sin, sin_of(x))
COMPLEX(sinh, sinh_of(x))
COMPLEX(sqrt, sqrt_of(x))
COMPLEX(tan, tan_of(x))
COMPLEX(tanh, tanh_of(x))

BINARY(pow_complex, complexes, pow_of(x, y))
