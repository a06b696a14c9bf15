// Elements whose order may be reversed.
//
// Kernels only look for the largest element: flipping bits of the elements reverses their order, or
// gives signed bytes the order of unsigned ones. So one kernel serves the largest and the smallest
// element, and all types of one byte.
#ifndef PULLBACK_CUDA_SORT_ORDER_CUH
#define PULLBACK_CUDA_SORT_ORDER_CUH

#include "kernels/common/dtypes.cuh"

// Bits of an element, and the value they stand for.
DEVICE uint32_t value_of(uint8_t bits, uint8_t) { return bits; }
DEVICE int32_t value_of(uint16_t bits, int16_t) { return (int16_t)bits; }
DEVICE int32_t value_of(uint32_t bits, int32_t) { return (int32_t)bits; }
DEVICE int64_t value_of(uint64_t bits, int64_t) { return (int64_t)bits; }
DEVICE float value_of(uint16_t bits, half) { return widen(half{bits}); }
DEVICE float value_of(uint16_t bits, bfloat16) { return widen(bfloat16{bits}); }
DEVICE float value_of(uint32_t bits, float) { return __uint_as_float(bits); }
DEVICE double value_of(uint64_t bits, double) { return __longlong_as_double((long long)bits); }

DEVICE uint8_t bits_of(uint32_t value, uint8_t) { return (uint8_t)value; }
DEVICE uint16_t bits_of(int32_t value, int16_t) { return (uint16_t)value; }
DEVICE uint32_t bits_of(int32_t value, int32_t) { return (uint32_t)value; }
DEVICE uint64_t bits_of(int64_t value, int64_t) { return (uint64_t)value; }
DEVICE uint16_t bits_of(float value, half) { return narrow_to_half(value).bits; }
DEVICE uint16_t bits_of(float value, bfloat16) { return narrow_to_bfloat16(value).bits; }
DEVICE uint32_t bits_of(float value, float) { return __float_as_uint(value); }
DEVICE uint64_t bits_of(double value, double) { return (uint64_t)__double_as_longlong(value); }

// T is the type that the bits represent.
template <class T, class Bits, class Value>
struct sort_order {
    typedef Bits stored;
    typedef Value value;
    static DEVICE value lowest() { return (value)traits<T>::lowest(); }
    static DEVICE value value_from(Bits bits, uint64_t mask) {
        return value_of((Bits)(bits ^ (Bits)mask), T{});
    }
    static DEVICE Bits bits_from(value x, uint64_t mask) { return bits_of(x, T{}) ^ (Bits)mask; }
    static DEVICE bool is_nan(value x) {
        if constexpr (traits<T>::is_floating)
            return x != x;
        else
            return false;
    }
    // NaN is larger than everything else.
    static DEVICE bool is_larger(value x, value than) {
        if constexpr (traits<T>::is_floating)
            return x > than || (x != x && than == than);
        else
            return x > than;
    }
};

// A line for every kernel: the ending of its name, the type, its bits, and their value.
#define FOR_ORDERED(X) \
    X(u8, uint8_t, uint8_t, uint32_t) \
    X(i16, int16_t, uint16_t, int32_t) \
    X(i32, int32_t, uint32_t, int32_t) \
    X(i64, int64_t, uint64_t, int64_t) \
    X(f16, half, uint16_t, float) \
    X(bf16, bfloat16, uint16_t, float) \
    X(f32, float, uint32_t, float) \
    X(f64, double, uint64_t, double)

#endif
