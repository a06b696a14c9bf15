// Complex numbers and their arithmetic.
//
// Every product of a complex product is rounded, never fused with the sum: so z * conj(z) is real,
// and the numbers are those of the other backends.
#ifndef PULLBACK_CUDA_COMPLEX_CUH
#define PULLBACK_CUDA_COMPLEX_CUH

#include "kernels/common/kernel.cuh"

template <class R>
struct alignas(2 * sizeof(R)) complex {
    R real;
    R imag;
};

DEVICE float rounded_product(float x, float y) { return __fmul_rn(x, y); }
DEVICE double rounded_product(double x, double y) { return __dmul_rn(x, y); }

DEVICE complex<double> widen_complex(complex<float> z) { return complex<double>{z.real, z.imag}; }
DEVICE complex<double> widen_complex(complex<double> z) { return z; }

template <class R>
DEVICE complex<R> narrow_complex(complex<double> z) {
    return complex<R>{(R)z.real, (R)z.imag};
}

template <class R>
DEVICE complex<R> conjugate(complex<R> z) {
    return complex<R>{z.real, -z.imag};
}

template <class R>
DEVICE complex<R> operator-(complex<R> z) {
    return complex<R>{-z.real, -z.imag};
}

template <class R>
DEVICE complex<R> operator+(complex<R> x, complex<R> y) {
    return complex<R>{x.real + y.real, x.imag + y.imag};
}

template <class R>
DEVICE complex<R> operator-(complex<R> x, complex<R> y) {
    return complex<R>{x.real - y.real, x.imag - y.imag};
}

template <class R>
DEVICE complex<R> operator*(complex<R> x, complex<R> y) {
    return complex<R>{rounded_product(x.real, y.real) - rounded_product(x.imag, y.imag),
                      rounded_product(x.real, y.imag) + rounded_product(x.imag, y.real)};
}

template <class R>
DEVICE complex<R> operator*(complex<R> x, R factor) {
    return complex<R>{x.real * factor, x.imag * factor};
}

// Smith's division (Communications of the ACM 5(8), 1962), scaled by the larger part of y, so that
// nothing overflows on the way; as NumPy's.
DEVICE complex<double> operator/(complex<double> x, complex<double> y) {
    double ratio, scale;
    if (fabs(y.real) >= fabs(y.imag)) {
        if (y.real == 0 && y.imag == 0)
            return complex<double>{x.real / fabs(y.real), x.imag / fabs(y.real)};
        ratio = y.imag / y.real;
        scale = 1 / (y.real + rounded_product(y.imag, ratio));
        return complex<double>{(x.real + rounded_product(x.imag, ratio)) * scale,
                               (x.imag - rounded_product(x.real, ratio)) * scale};
    }
    ratio = y.real / y.imag;
    scale = 1 / (y.imag + rounded_product(y.real, ratio));
    return complex<double>{(rounded_product(x.real, ratio) + x.imag) * scale,
                           (rounded_product(x.imag, ratio) - x.real) * scale};
}

// In double, whose range and digits leave one rounding.
DEVICE complex<float> operator/(complex<float> x, complex<float> y) {
    return narrow_complex<float>(widen_complex(x) / widen_complex(y));
}

DEVICE complex<double> one_over(complex<double> z) { return complex<double>{1, 0} / z; }

template <class R>
DEVICE bool operator==(complex<R> x, complex<R> y) {
    return x.real == y.real && x.imag == y.imag;
}

template <class R>
DEVICE bool operator!=(complex<R> x, complex<R> y) {
    return !(x == y);
}

template <class R>
DEVICE bool is_nan(complex<R> z) {
    return z.real != z.real || z.imag != z.imag;
}

// |z| without overflow or a lost small part.
DEVICE double absolute(complex<double> z) { return hypot(z.real, z.imag); }

#endif
