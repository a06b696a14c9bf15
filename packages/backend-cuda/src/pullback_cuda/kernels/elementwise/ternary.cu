// Elementwise kernels of three inputs, and of four where a number is one of them.
#include "kernels/common/kernel.cuh"

#include "kernels/common/elementwise_driver.cuh"

// NaN wins.
template <class T>
DEVICE T greatest(T x, T y) {
    return x < y || y != y ? y : x;
}
template <class T>
DEVICE T least(T x, T y) {
    return y < x || y != y ? y : x;
}

template <class U, class I>
DEVICE I wrapping_sum(I x, I v, I y, I z) {
    return (I)((U)x + (U)v * (U)y * (U)z);
}

// Exact at the weights 0 and 1.
template <class R>
DEVICE R lerp_of(R x, R y, R weight) {
    return fabs(weight) < (R)0.5 ? x + weight * (y - x) : y - (y - x) * (1 - weight);
}
DEVICE complex<double> lerp_of(complex<double> x, complex<double> y, complex<double> weight) {
    if (absolute(weight) < 0.5)
        return x + weight * (y - x);
    return y - (y - x) * (complex<double>{1, 0} - weight);
}

QUATERNARY(addcmul_int, ints, wrapping_sum<uint32_t>(x, v, y, z))
QUATERNARY(addcmul_long, longs, wrapping_sum<uint64_t>(x, v, y, z))
QUATERNARY(addcmul_float, floats, x + v * y * z)
QUATERNARY(addcmul_double, doubles, x + v * y * z)
QUATERNARY(addcmul_complex, complexes, x + v * y * z)

QUATERNARY(addcdiv_float, floats, x + v * y / z)
QUATERNARY(addcdiv_double, doubles, x + v * y / z)
QUATERNARY(addcdiv_complex, complexes, x + v * y / z)

TERNARY(clamp_int, ints, least(greatest(x, y), z))
TERNARY(clamp_long, longs, least(greatest(x, y), z))
TERNARY(clamp_float, floats, least(greatest(x, y), z))
TERNARY(clamp_double, doubles, least(greatest(x, y), z))

TERNARY(lerp_float, floats, lerp_of(x, y, z))
TERNARY(lerp_double, doubles, lerp_of(x, y, z))
TERNARY(lerp_complex, complexes, lerp_of(x, y, z))

// `where` only moves elements: their size matters.
#define WHERE(size, T) \
    ELEMENTWISE(where_##size, 3, bools, plain<T>, plain<T>, plain<T>::vector_size, \
                (const elementwise_arguments &args, bool x, T y, T z), x ? y : z)
WHERE(1, uint8_t)
WHERE(2, uint16_t)
WHERE(4, uint32_t)
WHERE(8, uint64_t)
WHERE(16, complex<double>)
