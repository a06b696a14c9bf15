// Ranks of the keys of a tile by one digit.
#ifndef PULLBACK_CUDA_RADIX_SORT_CUH
#define PULLBACK_CUDA_RADIX_SORT_CUH
#include "kernels/common/kernel.cuh"
#include "kernels/sorting/radix_sort.h"

#define WHOLE_WARP 0xffffffffu
#define RADIX_WARPS (RADIX_DIGITS / 32)

// Shared memory of a block that ranks a tile.
struct radix_counters {
    uint32_t of_warp[RADIX_WARPS][RADIX_DIGITS];
    uint32_t starts[RADIX_DIGITS]; // of the digits in the tile
    uint32_t totals[RADIX_DIGITS];
    uint32_t sums[RADIX_WARPS];
};

template <class Key>
DEVICE uint32_t digit_of(Key key, int digit) {
    return (uint32_t)(key >> (8 * digit)) & (RADIX_DIGITS - 1);
}

// The lanes whose digit is the same as this lane's.
DEVICE uint32_t lanes_alike(uint32_t digit) {
    uint32_t alike = WHOLE_WARP;
#pragma unroll
    for (int bit = 0; bit < 8; bit++) {
        const uint32_t set = __ballot_sync(WHOLE_WARP, digit >> bit & 1);
        alike &= digit >> bit & 1 ? set : ~set;
    }
    return alike;
}

// The sum of a number over the threads before this one; every thread of the block must call it.
// `sums` has room for a number of each warp.
template <class T>
DEVICE T sum_before(T number, T *sums) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    T total = number;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const T before = __shfl_up_sync(WHOLE_WARP, total, step);
        total += lane >= step ? before : 0;
    }
    if (lane == 31)
        sums[warp] = total;
    __syncthreads();
    T result = total - number;
    for (int i = 0; i < warps; i++)
        result += i < warp ? sums[i] : 0;
    __syncthreads();
    return result;
}

// Rank the keys of a tile by a digit. Key j of this thread is number (warp * ITEMS + j) * 32 + lane
// of the tile; equal digits keep their order. Also writes the starts and totals of digits.
template <class Key, int ITEMS>
DEVICE void rank_tile(const Key (&keys)[ITEMS], int digit, radix_counters &shared,
                      uint32_t (&ranks)[ITEMS]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t *const counts = shared.of_warp[warp];
#pragma unroll
    for (int i = 0; i < RADIX_WARPS; i++)
        shared.of_warp[i][threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const uint32_t value = digit_of(keys[j], digit), alike = lanes_alike(value);
        const uint32_t lower = alike & ((1u << lane) - 1);
        uint32_t before = 0;
        if (lower == 0) {
            before = counts[value];
            counts[value] = before + __popc(alike);
        }
        __syncwarp();
        ranks[j] = __shfl_sync(WHOLE_WARP, before, __ffs(alike) - 1) + __popc(lower);
    }
    __syncthreads();
    uint32_t total = 0;
#pragma unroll
    for (int i = 0; i < RADIX_WARPS; i++) {
        const uint32_t count = shared.of_warp[i][threadIdx.x];
        shared.of_warp[i][threadIdx.x] = total;
        total += count;
    }
    shared.totals[threadIdx.x] = total;
    shared.starts[threadIdx.x] = sum_before(total, shared.sums);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const uint32_t value = digit_of(keys[j], digit);
        ranks[j] += shared.starts[value] + counts[value];
    }
}

// Which passes over the digits change nothing, and so which buffer a pass reads.
struct radix_state {
    bool is_active;    // this pass changes something
    int passes_before; // that changed something

    DEVICE radix_state(const uint32_t *differ, int digit) {
        uint64_t bits = UINT64_MAX;
        if (differ != nullptr)
            bits = (uint64_t)differ[1] << 32 | differ[0];
        passes_before = 0;
        for (int i = 0; i < digit; i++)
            passes_before += digit_of(bits, i) != 0;
        is_active = digit < 8 && digit_of(bits, digit) != 0;
    }
};

#endif
