// Special functions of real numbers that C's library has not, in double. Formulas are named by
// their numbers in the Digital Library of Mathematical Functions (DLMF).
#ifndef PULLBACK_CUDA_SPECIAL_CUH
#define PULLBACK_CUDA_SPECIAL_CUH

#include "kernels/common/elementwise_driver.cuh"

#define PI 3.14159265358979323846

OUT_OF_LINE double digamma_of(double x) {
    // 5.5.4 reflects to x > 0, 5.5.2 raises x to 10, and 5.11.2 is the expansion there.
    double total = 0;
    if (x == 0)
        return -1 / x;
    if (x < 0) {
        if (x == floor(x))
            return NAN;
        total = -PI / tan(PI * (x - rint(x))); // the difference is exact, also next to a pole
        x = 1 - x;
    }
    for (; x < 10; x += 1)
        total -= 1 / x;
    double square = 1 / (x * x);
    double series =
        square *
        (1. / 12 -
         square * (1. / 120 -
                   square * (1. / 252 -
                             square * (1. / 240 - square * (1. / 132 - square * (691. / 32760 -
                                                                                 square / 12))))));
    return total + log(x) - 0.5 / x - series;
}

OUT_OF_LINE double zeta_above_zero(double s, double a) {
    // Euler and Maclaurin's formula, 25.11.7, from an `a` that its terms fall off at. A factor is
    // B_2j / (2j)!.
    double total = 0, start = 12 + fmin(s, 200.);
    for (; a < start; a += 1)
        total += pow(a, -s);
    double power = pow(a, -s), rising = s * power / a, square = 1 / (a * a);
    total += power * (a / (s - 1) + 0.5);
#define TERM(j, factor) \
    total += (factor) * rising; \
    rising *= (s + (2 * (j) + 1)) * (s + (2 * (j) + 2)) * square;
    TERM(0, 1. / 12)
    TERM(1, -1. / 720)
    TERM(2, 1. / 30240)
    TERM(3, -1. / 1209600)
    TERM(4, 1. / 47900160)
    TERM(5, -691. / 1307674368000.)
    TERM(6, 1. / 74724249600.)
    TERM(7, -3617. / 10670622842880000.)
#undef TERM
    return total;
}

OUT_OF_LINE double hurwitz_zeta(double s, double a) {
    if (s == 1)
        return INFINITY;
    if (!(s > 1) || a != a)
        return NAN;
    if (a > 0)
        return a == INFINITY ? 0 : zeta_above_zero(s, a);
    if (a == floor(a))
        return INFINITY;
    if (s != floor(s))
        return NAN;
    // The terms on the other side of zero are a zeta function too, without its own far end.
    double below = zeta_above_zero(s, ceil(a) - a) - zeta_above_zero(s, 1 - a);
    return zeta_above_zero(s, a - floor(a)) + (fmod(s, 2.) == 0 ? below : -below);
}

OUT_OF_LINE double bessel_i(int order, double x) {
    // The series 10.25.2 for small x >= 0; from 20 on the expansion 10.40.1.
    double quarter = x * x / 4, term = 1, total = 1;
    int k = 0;
    if (x != x)
        return x;
    if (x < 20) {
        if (order)
            term = total = x / 2;
        while (term > 1e-17 * total) {
            ++k;
            term *= quarter / (k * (k + order));
            total += term;
        }
        return total;
    }
    while (k < 40 && fabs(term) > 1e-17) {
        ++k;
        term *= ((2. * k - 1) * (2. * k - 1) - 4 * order) / (8 * x * k);
        total += term;
    }
    return exp(x) / sqrt(2 * PI * x) * total;
}

DEVICE double bessel_i0(double x) { return bessel_i(0, fabs(x)); }
DEVICE double bessel_i1(double x) { return x < 0 ? -bessel_i(1, -x) : bessel_i(1, fabs(x)); }

DEVICE double ratio_of_polynomials(double r, const double (&above)[8], const double (&below)[8]) {
    double high = above[0], low = below[0];
#pragma unroll
    for (int i = 1; i < 8; ++i) {
        high = high * r + above[i];
        low = low * r + below[i];
    }
    return high / low;
}

OUT_OF_LINE double erfinv_of(double x) {
    // From the normal quantile: Wichura, algorithm AS 241, Applied Statistics 37(3), 1988.
    const double middle_above[8] = {
        2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
        13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.3871328727963666080};
    const double middle_below[8] = {
        5226.4952788528545610, 28729.085735721942674, 39307.895800092710610, 21213.794301586595867,
        5394.1960214247511077, 687.18700749205790830, 42.313330701600911252, 1};
    const double tail_above[8] = {7.74545014278341407640e-4, 2.27238449892691845833e-2,
                                  2.41780725177450611770e-1, 1.27045825245236838258,
                                  3.64784832476320460504,    5.76949722146069140550,
                                  4.63033784615654529590,    1.42343711074968357734};
    const double tail_below[8] = {1.05075007164441684324e-9, 5.47593808499534494600e-4,
                                  1.51986665636164571966e-2, 1.48103976427480074590e-1,
                                  6.89767334985100004550e-1, 1.67638483018380384940,
                                  2.05319162663775882187,    1};
    const double end_above[8] = {2.01033439929228813265e-7, 2.71155556874348757815e-5,
                                 1.24266094738807843860e-3, 2.65321895265761230930e-2,
                                 2.96560571828504891230e-1, 1.78482653991729133580,
                                 5.46378491116411436990,    6.65790464350110377720};
    const double end_below[8] = {2.04426310338993978564e-15, 1.42151175831644588870e-7,
                                 1.84631831751005468180e-5,  7.86869131145613259100e-4,
                                 1.48753612908506148525e-2,  1.36929880922735805310e-1,
                                 5.99832206555887937690e-1,  1};
    double q = x / 2, size = fabs(x);
    if (fabs(q) <= 0.425)
        return 0.7071067811865476 * q *
               ratio_of_polynomials(0.180625 - q * q, middle_above, middle_below);
    if (!(size < 1))
        return size == 1 ? x * INFINITY : NAN;
    double r = sqrt(-log((1 - size) / 2));
    double found = r <= 5 ? ratio_of_polynomials(r - 1.6, tail_above, tail_below)
                          : ratio_of_polynomials(r - 5, end_above, end_below);
    return copysign(0.7071067811865476 * found, x);
}

OUT_OF_LINE double entr_of(double x) {
    return x > 0 ? -x * log(x) : x == 0 ? 0. : x < 0 ? -INFINITY : x;
}

OUT_OF_LINE double logit_of(double x) {
    // Next to 1/2, where the logarithm cancels, 2 atanh(2 x - 1).
    double t = 2 * x - 1;
    return fabs(t) < 0.5 ? log1p(t) - log1p(-t) : log(x / (1 - x));
}

OUT_OF_LINE double ndtr_of(double x) {
    // erfc(z) / 2 of z = -x sqrt(1/2), and what z lacks times the derivative.
    const double root = 0.7071067811865476, root_low = -4.833646656726457e-17;
    double z = -root * x, low = -(fma(root, x, z) + root_low * x);
    double lacking = fabs(z) < 28 ? 1.1283791670955126 * exp(-z * z) * low : 0.;
    return 0.5 * (erfc(z) - lacking);
}

OUT_OF_LINE double sinc_of(double x) {
    // With the nearest whole number n, x - n is exact.
    double n = rint(x), r = x - n, odd = n - 2 * rint(0.5 * n);
    double value = x == 0 ? 1. : sin(PI * r) / PI / x;
    return odd == 0 ? value : -value;
}

#endif
