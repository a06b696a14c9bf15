// Functions of complex numbers, in double. Values at infinities, NaN and signed zeros, and the
// sides of branch cuts, are those of annex G of the C standard.
#ifndef PULLBACK_CUDA_COMPLEX_FUNCTIONS_CUH
#define PULLBACK_CUDA_COMPLEX_FUNCTIONS_CUH

#include "kernels/common/elementwise_driver.cuh"

typedef complex<double> c128;

#define LOG_2 0.69314718055994530942
#define HALF_PI 1.57079632679489661923
#define EXP_LARGE 708.0 /* e^x is finite up to here */

DEVICE bool is_finite(double x) { return x - x == 0; }
DEVICE bool is_infinite(c128 z) { return fabs(z.real) == INFINITY || fabs(z.imag) == INFINITY; }
DEVICE c128 times_i(c128 z) { return c128{-z.imag, z.real}; }
DEVICE c128 over_i(c128 z) { return c128{z.imag, -z.real}; }

// e^x * y * factor, where e^x alone may overflow. Three roots: y may be as small as e^-744.
DEVICE double scaled_power(double x, double y, double factor = 1) {
    if (!(x > EXP_LARGE))
        return exp(x) * y * factor;
    double root = exp(fmin(x, 3 * EXP_LARGE) / 3);
    return root * y * factor * root * root;
}

OUT_OF_LINE c128 exp_of(c128 z) {
    if (z.imag == 0)
        return c128{exp(z.real), z.imag};
    if (!is_finite(z.imag)) {
        if (z.real == -INFINITY)
            return c128{0, copysign(0., z.imag)};
        return c128{z.real == INFINITY ? z.real : NAN, NAN};
    }
    return c128{scaled_power(z.real, cos(z.imag)), scaled_power(z.real, sin(z.imag))};
}

// log|z|, with all digits also where |z| is next to 1.
OUT_OF_LINE double log_of_size(c128 z) {
    if (is_nan(z))
        return is_infinite(z) ? INFINITY : NAN;
    double x = fmax(fabs(z.real), fabs(z.imag)), y = fmin(fabs(z.real), fabs(z.imag));
    if (x > 0.5 && x < 1.5 && y < 1.5) {
        // Products that are rounded, as the sum of their errors is added.
        double square = rounded_product(x, x), other = rounded_product(y, y);
        double square_low = fma(x, x, -square), other_low = fma(y, y, -other);
        double above = square - 1, total = above + other, part = total - above;
        double low = (above - (total - part)) + (other - part) + (square_low + other_low);
        total += low;
        if (fabs(total) < 0.5)
            return 0.5 * log1p(total);
    }
    if (x > 1e300) // the size may overflow
        return log(hypot(x * 0.5, y * 0.5)) + LOG_2;
    if (x < 1e-300 && x > 0)
        return log(hypot(x * 0x1p200, y * 0x1p200)) - 200 * LOG_2;
    return log(hypot(x, y));
}

OUT_OF_LINE c128 log_of(c128 z) { return c128{log_of_size(z), atan2(z.imag, z.real)}; }

OUT_OF_LINE c128 sqrt_of(c128 z) {
    double x = z.real, y = z.imag, scale = 1;
    if (fabs(y) == INFINITY)
        return c128{INFINITY, y};
    if (fabs(x) == INFINITY) {
        if (x > 0)
            return c128{x, y == y ? copysign(0., y) : y};
        return c128{y == y ? 0 : y, copysign(INFINITY, y)};
    }
    if (is_nan(z))
        return c128{NAN, NAN};
    if (x == 0 && y == 0)
        return c128{0, y};
    double size = fmax(fabs(x), fabs(y));
    if (size > 1e300) {
        x *= 0.25;
        y *= 0.25;
        scale = 2;
    } else if (size < 1e-280) {
        x *= 0x1p200;
        y *= 0x1p200;
        scale = 0x1p-100;
    }
    // The square root of (|x| + |z|) / 2 has no cancellation; the other part is y / 2 over it.
    double root = sqrt((fabs(x) + hypot(x, y)) * 0.5), other = 0.5 * fabs(y) / root;
    return c128{(x >= 0 ? root : other) * scale, copysign((x >= 0 ? other : root) * scale, y)};
}

// (e^x + e^-x) / 2 * y and (e^x - e^-x) / 2 * y, where the first factor may overflow.
DEVICE double cosh_times(double x, double y) {
    return fabs(x) > EXP_LARGE ? scaled_power(fabs(x), y, 0.5) : cosh(x) * y;
}
DEVICE double sinh_times(double x, double y) {
    return fabs(x) > EXP_LARGE ? scaled_power(fabs(x), y, copysign(0.5, x)) : sinh(x) * y;
}

OUT_OF_LINE c128 sinh_of(c128 z) {
    if (z.imag == 0)
        return c128{sinh(z.real), z.imag};
    if (!is_finite(z.imag))
        return c128{z.real == 0 ? z.real : fabs(z.real) == INFINITY ? INFINITY : NAN, NAN};
    return c128{sinh_times(z.real, cos(z.imag)), cosh_times(z.real, sin(z.imag))};
}

OUT_OF_LINE c128 cosh_of(c128 z) {
    if (z.imag == 0)
        return c128{cosh(z.real), z.real == z.real ? copysign(1., z.real) * z.imag : z.imag};
    if (!is_finite(z.imag))
        return c128{fabs(z.real) == INFINITY ? INFINITY : NAN, z.real == 0 ? 0. : NAN};
    return c128{cosh_times(z.real, cos(z.imag)), sinh_times(z.real, sin(z.imag))};
}

OUT_OF_LINE c128 tanh_of(c128 z) {
    double x = z.real, y = z.imag;
    if (y == 0)
        return c128{tanh(x), y};
    if (!is_finite(y)) {
        if (fabs(x) == INFINITY)
            return c128{copysign(1., x), copysign(0., y)};
        return c128{x == 0 ? x : NAN, NAN};
    }
    double sine = sin(y), cosine = cos(y);
    if (fabs(x) > 350) // next to one; the square of e^x overflows
        return c128{copysign(1., x), 4 * sine * cosine * exp(-fabs(x)) * exp(-fabs(x))};
    double high = sinh(x), square = high * high + cosine * cosine;
    return c128{high * cosh(x) / square, sine * cosine / square};
}

// The inverse functions by square roots (W. Kahan, Branch cuts for complex elementary functions,
// 1987). Beyond `FAR` they are logarithms of 2 z, and squares would overflow.
#define FAR 1e150

DEVICE bool is_far(c128 z) { return fabs(z.real) > FAR || fabs(z.imag) > FAR; }

OUT_OF_LINE c128 acos_of(c128 z) {
    if (is_far(z))
        return c128{atan2(fabs(z.imag), z.real), -copysign(log_of_size(z) + LOG_2, z.imag)};
    if (z.imag != z.imag)
        return c128{z.real == 0 ? HALF_PI : NAN, NAN};
    c128 below = sqrt_of(c128{1 - z.real, -z.imag}), above = sqrt_of(c128{1 + z.real, z.imag});
    return c128{2 * atan2(below.real, above.real),
                asinh(above.real * below.imag - above.imag * below.real)};
}

OUT_OF_LINE c128 asin_of(c128 z) {
    if (is_far(z))
        return c128{atan2(z.real, fabs(z.imag)), copysign(log_of_size(z) + LOG_2, z.imag)};
    if (is_nan(z))
        return c128{z.real == 0 ? z.real : NAN, NAN};
    c128 below = sqrt_of(c128{1 - z.real, -z.imag}), above = sqrt_of(c128{1 + z.real, z.imag});
    return c128{atan2(z.real, below.real * above.real - below.imag * above.imag),
                asinh(below.real * above.imag - below.imag * above.real)};
}

OUT_OF_LINE c128 atanh_of(c128 z) {
    double x = fabs(z.real), y = fabs(z.imag), real, imag;
    if (is_nan(z) && !is_infinite(z)) {
        real = z.real == 0 ? 0. : NAN;
        imag = NAN;
    } else if (is_far(z)) {
        double size = x > y ? x + y / x * y : y + x / y * x; // |z|^2 over the larger part
        real = x > y ? 1 / size : x / y / size;
        if (is_infinite(z))
            real = 0;
        imag = y == y ? HALF_PI : NAN;
    } else {
        // Next to the pole the square of y vanishes.
        if (x == 1 && y < 1e-150)
            real = 0.5 * (LOG_2 - log(y));
        else
            real = 0.25 * log1p(4 * x / ((1 - x) * (1 - x) + y * y));
        imag = 0.5 * atan2(2 * y, (1 - x) * (1 + x) - y * y);
    }
    return c128{copysign(real, z.real), copysign(imag, z.imag)};
}

DEVICE c128 sin_of(c128 z) {
    c128 found = over_i(sinh_of(times_i(z)));
    // Of two infinities the sign is free; C libraries agree on this one.
    return c128{found.real, fabs(z.imag) == INFINITY && !is_finite(z.real) ? INFINITY : found.imag};
}
DEVICE c128 cos_of(c128 z) { return cosh_of(times_i(z)); }
DEVICE c128 tan_of(c128 z) { return over_i(tanh_of(times_i(z))); }
DEVICE c128 asinh_of(c128 z) { return times_i(asin_of(over_i(z))); }
DEVICE c128 atan_of(c128 z) { return over_i(atanh_of(times_i(z))); }

DEVICE c128 acosh_of(c128 z) {
    c128 angle = acos_of(z);
    return c128{fabs(angle.imag), copysign(angle.real, z.imag)};
}

OUT_OF_LINE c128 sigmoid_of(c128 z) {
    bool falls = z.real < 0;
    c128 power = exp_of(falls ? z : -z); // which does not overflow
    if (falls)
        return power / c128{1 + power.real, power.imag};
    return one_over(c128{1 + power.real, power.imag});
}

OUT_OF_LINE c128 log1p_of(c128 z) {
    // |1 + z|^2 = 1 + x (2 + x) + y^2 keeps the digits of a small z.
    if (fabs(z.real) < 0.5 && fabs(z.imag) < 0.5) {
        double square = z.real * (2 + z.real) + z.imag * z.imag;
        return c128{0.5 * log1p(square), atan2(z.imag, 1 + z.real)};
    }
    return log_of(c128{1 + z.real, z.imag});
}

OUT_OF_LINE c128 expm1_of(c128 z) {
    // cos y - 1 = -2 sin(y / 2)^2 keeps the digits of a small z.
    if (!(z.real < 80 && fabs(z.imag) < INFINITY)) { // the power has all digits, or limits
        c128 power = exp_of(z);
        return c128{power.real - 1, power.imag};
    }
    double half_sine = sin(0.5 * z.imag);
    return c128{expm1(z.real) * cos(z.imag) - 2 * half_sine * half_sine, exp(z.real) * sin(z.imag)};
}

// A product in which infinities win over NaN, as annex G has it.
OUT_OF_LINE c128 full_product(c128 x, c128 y) {
    c128 found = x * y;
    if (found.real == found.real || found.imag == found.imag)
        return found;
    bool again = false;
    if (is_infinite(x)) {
        x = c128{copysign(fabs(x.real) == INFINITY ? 1. : 0., x.real),
                 copysign(fabs(x.imag) == INFINITY ? 1. : 0., x.imag)};
        y = c128{y.real == y.real ? y.real : copysign(0., y.real),
                 y.imag == y.imag ? y.imag : copysign(0., y.imag)};
        again = true;
    }
    if (is_infinite(y)) {
        y = c128{copysign(fabs(y.real) == INFINITY ? 1. : 0., y.real),
                 copysign(fabs(y.imag) == INFINITY ? 1. : 0., y.imag)};
        x = c128{x.real == x.real ? x.real : copysign(0., x.real),
                 x.imag == x.imag ? x.imag : copysign(0., x.imag)};
        again = true;
    }
    return again ? (x * y) * (double)INFINITY : found;
}

OUT_OF_LINE c128 pow_of(c128 z, c128 w) {
    if (w.imag == 0) {
        if (w.real == 0)
            return c128{1, 0};
        if (w.real == 2)
            return z * z;
    }
    return exp_of(full_product(w, log_of(z)));
}

#endif
