// The element types as kernels see them: how they are stored, what they compute in, and C's casts
// between all of them.
#ifndef PULLBACK_CUDA_DTYPES_CUH
#define PULLBACK_CUDA_DTYPES_CUH

#include "math/complex.cuh"
#include "kernels/common/kernel.cuh"

// A line for every element type: the ending of kernel names, and the storage type.
#define FOR_INTEGRAL(X) X(u8, uint8_t) X(i8, int8_t) X(i16, int16_t) X(i32, int32_t) X(i64, int64_t)
#define FOR_FLOATING(X) X(f16, half) X(bf16, bfloat16) X(f32, float) X(f64, double)
#define FOR_COMPLEX(X) X(c64, complex<float>) X(c128, complex<double>)
#define FOR_REAL(X) FOR_INTEGRAL(X) FOR_FLOATING(X)
#define FOR_ALL(X) X(b, bool) FOR_REAL(X) FOR_COMPLEX(X)

// ---- 16-bit numbers: bit patterns, computed with in float --------------------------------------

struct half {
    uint16_t bits;
};

struct bfloat16 {
    uint16_t bits;
};

DEVICE float widen(half stored) {
#if defined(__CUDA_ARCH__)
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(stored.bits));
    return value;
#else
    uint32_t magnitude = (stored.bits & 0x7FFFu) << 13, sign = (stored.bits & 0x8000u) << 16;
    uint32_t exponent = magnitude & 0x0F800000u;
    if (exponent == 0) // a subnormal number: a subtraction finds its leading bit
        return __uint_as_float(
            sign | __float_as_uint(__uint_as_float(magnitude + (113u << 23)) - 0x1p-14f));
    if (exponent == 0x0F800000u)
        return __uint_as_float(magnitude > exponent ? 0x7FFFFFFFu : sign | 0x7F800000u);
    return __uint_as_float(sign | (magnitude + (112u << 23)));
#endif
}

DEVICE float widen(bfloat16 stored) { return __uint_as_float((uint32_t)stored.bits << 16); }

DEVICE half narrow_to_half(float value) {
    half result;
#if defined(__CUDA_ARCH__)
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
#else
    uint32_t bits = __float_as_uint(value), magnitude = bits & 0x7FFFFFFFu, rounded;
    if (magnitude > 0x7F800000u)
        rounded = 0x7FFF;
    else if (magnitude >= (143u << 23))
        rounded = 0x7C00;
    else if (magnitude < (113u << 23)) // adding one half rounds a subnormal number
        rounded = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3F000000u;
    else
        rounded = (magnitude - (112u << 23) + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
    if (magnitude <= 0x7F800000u)
        rounded |= (bits >> 16) & 0x8000u;
    result.bits = (uint16_t)rounded;
#endif
    return result;
}

DEVICE bfloat16 narrow_to_bfloat16(float value) {
    // To nearest, ties to even. NaN must not round up to infinity.
    uint32_t bits = __float_as_uint(value);
    bfloat16 result;
    result.bits =
        (uint16_t)(value != value ? 0x7FFFu : (bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16);
    return result;
}

// ---- traits ------------------------------------------------------------------------------------

// The compute type of a storage type T, the type of its sums, and its kind.
// `lowest` and `highest` are the ends of its order, infinities where there are any.
template <class T, class Compute, class Accumulate, bool FLOATING, bool COMPLEX>
struct basic_traits {
    typedef Compute compute;
    typedef Accumulate accumulate;
    static constexpr bool is_floating = FLOATING;
    static constexpr bool is_complex = COMPLEX;
    static constexpr bool is_integer = !FLOATING && !COMPLEX; // bool too
};

template <class T>
struct traits;

#define INTEGER_TRAITS(T, LOWEST, HIGHEST) \
    template <> \
    struct traits<T> : basic_traits<T, T, int64_t, false, false> { \
        static DEVICE T lowest() { return (T)(LOWEST); } \
        static DEVICE T highest() { return (T)(HIGHEST); } \
    };
INTEGER_TRAITS(bool, false, true)
INTEGER_TRAITS(uint8_t, 0, 255)
INTEGER_TRAITS(int8_t, -128, 127)
INTEGER_TRAITS(int16_t, -32768, 32767)
INTEGER_TRAITS(int32_t, -2147483647 - 1, 2147483647)
INTEGER_TRAITS(int64_t, -9223372036854775807LL - 1, 9223372036854775807LL)
#undef INTEGER_TRAITS

#define FLOATING_TRAITS(T, Compute) \
    template <> \
    struct traits<T> : basic_traits<T, Compute, Compute, true, false> { \
        static DEVICE Compute lowest() { return -highest(); } \
        static DEVICE Compute highest() { return (Compute)__uint_as_float(0x7F800000u); } \
    };
FLOATING_TRAITS(half, float)
FLOATING_TRAITS(bfloat16, float)
FLOATING_TRAITS(float, float)
FLOATING_TRAITS(double, double)
#undef FLOATING_TRAITS

template <class R>
struct traits<complex<R>> : basic_traits<complex<R>, complex<R>, complex<R>, false, true> {};

// ---- between storage type and compute type -----------------------------------------------------

// widen(T) gives the compute type of any stored element, narrow<T> turns it into an element again.
template <class T>
DEVICE T widen(T stored) {
    return stored;
}

template <class T>
struct narrowing {
    static DEVICE T of(T value) { return value; }
};
template <>
struct narrowing<half> {
    static DEVICE half of(float value) { return narrow_to_half(value); }
};
template <>
struct narrowing<bfloat16> {
    static DEVICE bfloat16 of(float value) { return narrow_to_bfloat16(value); }
};

template <class T>
DEVICE T narrow(typename traits<T>::compute value) {
    return narrowing<T>::of(value);
}

template <class T>
DEVICE typename traits<T>::compute load(const T *address) {
    return widen(*address);
}

template <class T>
DEVICE void store(T *address, typename traits<T>::compute value) {
    *address = narrow<T>(value);
}

// ---- C's casts ---------------------------------------------------------------------------------

// Values out of range become the smallest integer, on every device.
template <class F>
DEVICE int32_t truncate_to_int32(F value) {
    return value > (F)-2147483649.0 && value < (F)2147483648.0 ? (int32_t)value : -2147483647 - 1;
}

template <class F>
DEVICE int64_t truncate_to_int64(F value) {
    return value >= (F)-9223372036854775808.0 && value < (F)9223372036854775808.0
               ? (int64_t)value
               : -9223372036854775807LL - 1;
}

// From a compute type to a storage type; every pair that is not named here is a plain cast.
template <class To, class From>
struct cast {
    static DEVICE To of(From value) { return (To)value; }
};

template <class From>
struct cast<bool, From> {
    static DEVICE bool of(From value) { return value != (From)0; }
};
#define CAST_TRUNCATES(F) \
    template <> \
    struct cast<uint8_t, F> { \
        static DEVICE uint8_t of(F value) { \
            return (uint8_t)truncate_to_int64(value); /* -1.0 becomes 255 */ \
        } \
    }; \
    template <> \
    struct cast<int8_t, F> { \
        static DEVICE int8_t of(F value) { return (int8_t)truncate_to_int32(value); } \
    }; \
    template <> \
    struct cast<int16_t, F> { \
        static DEVICE int16_t of(F value) { return (int16_t)truncate_to_int32(value); } \
    }; \
    template <> \
    struct cast<int32_t, F> { \
        static DEVICE int32_t of(F value) { return truncate_to_int32(value); } \
    }; \
    template <> \
    struct cast<int64_t, F> { \
        static DEVICE int64_t of(F value) { return truncate_to_int64(value); } \
    };
CAST_TRUNCATES(float)
CAST_TRUNCATES(double)
#undef CAST_TRUNCATES

template <class From>
struct cast<half, From> {
    static DEVICE half of(From value) { return narrow_to_half((float)value); }
};
template <class From>
struct cast<bfloat16, From> {
    static DEVICE bfloat16 of(From value) { return narrow_to_bfloat16((float)value); }
};

template <class R, class From>
struct cast<complex<R>, From> {
    static DEVICE complex<R> of(From value) { return complex<R>{(R)value, (R)0}; }
};
template <class R, class S>
struct cast<complex<R>, complex<S>> {
    static DEVICE complex<R> of(complex<S> value) {
        return complex<R>{(R)value.real, (R)value.imag};
    }
};
template <class To, class S>
struct cast<To, complex<S>> {
    static DEVICE To of(complex<S> value) { return cast<To, S>::of(value.real); }
};
// Each of these matches two of the patterns above.
template <class S>
struct cast<bool, complex<S>> {
    static DEVICE bool of(complex<S> value) { return value.real != (S)0 || value.imag != (S)0; }
};
template <class S>
struct cast<half, complex<S>> {
    static DEVICE half of(complex<S> value) { return narrow_to_half((float)value.real); }
};
template <class S>
struct cast<bfloat16, complex<S>> {
    static DEVICE bfloat16 of(complex<S> value) { return narrow_to_bfloat16((float)value.real); }
};

// Turn an element of any storage type into one of another, as C does: complex to real drops the
// imaginary part, anything to bool compares with zero, numbers to integers are truncated.
template <class To, class From>
DEVICE To convert(From stored) {
    return cast<To, typename traits<From>::compute>::of(widen(stored));
}

#endif
