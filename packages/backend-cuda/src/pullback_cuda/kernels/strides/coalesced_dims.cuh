// Where the position with a number lies: the device's side of coalesced_dims.h.
#ifndef PULLBACK_CUDA_AXES_CUH
#define PULLBACK_CUDA_AXES_CUH

#include "kernels/strides/coalesced_dims.h"
#include "kernels/common/kernel.cuh"

// An offset, in elements, for each of N operands.
template <int N>
struct offsets {
    int64_t of[N];
};

// number / axis.size, for a number below 2^31.
DEVICE uint32_t divide(uint32_t number, const pb_axis &axis) {
    return quotient_of(number, axis.multiplier, axis.shift);
}

// Likewise for any number that is not negative.
DEVICE int64_t divide_any(int64_t number, const pb_axis &axis) {
    return number <= INT32_MAX ? divide((uint32_t)number, axis) : number / axis.size;
}

// Return where a position of `count` axes lies, for N operands. Its number is below 2^31.
template <int N>
DEVICE offsets<N> locate(const pb_axis *axes, int count, uint32_t number) {
    offsets<N> found;
#pragma unroll
    for (int k = 0; k < N; k++)
        found.of[k] = 0;
#pragma unroll 1
    for (; count > 1; count--, axes++) {
        uint32_t quotient = divide(number, *axes);
        uint32_t place = number - quotient * (uint32_t)axes->size;
#pragma unroll
        for (int k = 0; k < N; k++)
            found.of[k] += place * axes->strides[k];
        number = quotient;
    }
#pragma unroll
    for (int k = 0; k < N; k++)
        found.of[k] += number * axes->strides[k];
    return found;
}

#endif
