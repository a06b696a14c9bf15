// Coordinates of numbered elements, words that are as large as an element, and failures of indices.
#ifndef PULLBACK_CUDA_INDEXER_CUH
#define PULLBACK_CUDA_INDEXER_CUH
#include "kernels/common/kernel.cuh"
#include "kernels/strides/indexer.h"

struct alignas(16) word_16 {
    uint64_t low, high;
};

// A type of so many bytes, for kernels that only move elements.
template <int BYTES>
struct word_of;
template <>
struct word_of<1> {
    typedef uint8_t type;
};
template <>
struct word_of<2> {
    typedef uint16_t type;
};
template <>
struct word_of<4> {
    typedef uint32_t type;
};
template <>
struct word_of<8> {
    typedef uint64_t type;
};
template <>
struct word_of<16> {
    typedef word_16 type;
};

DEVICE uint32_t quotient(uint32_t number, const int_divider &by) {
    return quotient_of(number, by.multiplier, by.shift);
}

// Divide a number of at most `narrow ? 31 : 63` bits.
DEVICE int64_t quotient(int64_t number, const int_divider &by, bool narrow) {
    return narrow ? (int64_t)quotient((uint32_t)number, by) : number / by.size;
}

// Call `take(dim, coordinate)` for each dim, from the last to the first.
template <class Take>
DEVICE void unravel_index(const indexer_dims &where, int64_t number, Take take) {
    for (int d = where.ndim - 1; d > 0; d--) {
        const int64_t next = quotient(number, where.dims[d], where.narrow);
        take(d, number - next * where.dims[d].size);
        number = next;
    }
    take(0, number);
}

// The offset of a numbered element in an array with these steps.
DEVICE int64_t offset_of(const indexer_dims &where, int64_t number, const int64_t *steps) {
    int64_t offset = 0;
    unravel_index(where, number, [&](int d, int64_t at) { offset += at * steps[d]; });
    return offset;
}

// The number of this thread in the grid, and how many there are.
DEVICE int64_t thread_number() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
DEVICE int64_t thread_count() { return (int64_t)gridDim.x * blockDim.x; }

#endif
