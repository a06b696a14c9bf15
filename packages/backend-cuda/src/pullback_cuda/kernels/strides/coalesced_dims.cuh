// Offsets of numbered positions: the device side of coalesced_dims.h.
#ifndef PULLBACK_CUDA_COALESCED_DIMS_CUH
#define PULLBACK_CUDA_COALESCED_DIMS_CUH

#include "kernels/strides/coalesced_dims.h"
#include "kernels/common/kernel.cuh"

// An offset, in elements, for each of N operands.
template <int N>
struct offsets {
    int64_t of[N];
};

// number / dim.size, for a number below 2^31.
DEVICE uint32_t divide(uint32_t number, const pb_dim &dim) {
    return quotient_of(number, dim.multiplier, dim.shift);
}

// Likewise for any number that is not negative.
DEVICE int64_t divide_any(int64_t number, const pb_dim &dim) {
    return number <= INT32_MAX ? divide((uint32_t)number, dim) : number / dim.size;
}

// Return the offsets of a numbered position of `count` dims, for N operands; numbers below 2^31.
template <int N>
DEVICE offsets<N> locate(const pb_dim *dims, int count, uint32_t number) {
    offsets<N> found;
#pragma unroll
    for (int k = 0; k < N; k++)
        found.of[k] = 0;
#pragma unroll 1
    for (; count > 1; count--, dims++) {
        uint32_t quotient = divide(number, *dims);
        uint32_t index = number - quotient * (uint32_t)dims->size;
#pragma unroll
        for (int k = 0; k < N; k++)
            found.of[k] += index * dims->strides[k];
        number = quotient;
    }
#pragma unroll
    for (int k = 0; k < N; k++)
        found.of[k] += number * dims->strides[k];
    return found;
}

#endif
