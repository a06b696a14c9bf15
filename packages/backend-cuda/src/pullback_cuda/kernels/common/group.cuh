// Threads of a block that share a line, its lanes, and results that all of them get.
#ifndef PULLBACK_CUDA_LANES_CUH
#define PULLBACK_CUDA_LANES_CUH

#include "kernels/common/vectorized.cuh"

// Lanes and slots, which are the lines of a block, are given as powers of two. The lanes of a line
// lie side by side; where neighbouring elements are of different lines, the slots do.
struct lane_grid {
    int lanes;
    int slots;
    bool strided;

    DEVICE int lane() const {
        return strided ? (int)threadIdx.x >> slots : (int)threadIdx.x & ((1 << lanes) - 1);
    }
    DEVICE int slot() const {
        return strided ? (int)threadIdx.x & ((1 << slots) - 1) : (int)threadIdx.x >> lanes;
    }
};

// Combine a value of each lane; all lanes of a line get the same bits, if the operation does not
// mind the order of two operands. Every thread of the block takes part. Shared memory must have
// room for a value of each thread.
template <class T, class Combine>
DEVICE T combine_lanes(const lane_grid &grid, T value, Combine combine) {
    DYNAMIC_SHARED(T, shared);
    const int thread = threadIdx.x;
    if (!grid.strided) {
        const int width = grid.lanes < 5 ? 1 << grid.lanes : 32;
#pragma unroll 1
        for (int distance = width >> 1; distance; distance >>= 1)
            value = combine(value, shuffle_xor(value, distance));
        if (grid.lanes <= 5)
            return value;
    }
    // What is left: the warps of a line side by side, or lanes as far apart as there are slots.
    const int warps = grid.strided ? 1 << grid.lanes : 1 << (grid.lanes - 5);
    const int apart = grid.strided ? 1 << grid.slots : 1;
    const int first = grid.strided ? thread & (apart - 1) : (thread >> 5) & ~(warps - 1);
    if (warps == 1)
        return value;
    if (grid.strided || (thread & 31) == 0)
        shared[grid.strided ? thread : thread >> 5] = value;
    __syncthreads();
    value = shared[first];
#pragma unroll 1
    for (int k = 1; k < warps; k++)
        value = combine(value, shared[first + k * apart]);
    __syncthreads();
    return value;
}

struct larger_of {
    template <class T>
    DEVICE T operator()(T x, T y) const {
        return y > x ? y : x;
    }
};

struct sum_of_both {
    template <class T>
    DEVICE T operator()(T x, T y) const {
        return x + y;
    }
};

// Add up N values, a power of two, in pairs: there errors grow least.
template <int N, class T>
DEVICE T add_in_pairs(const T (&values)[N]) {
    if constexpr (N == 1) {
        return values[0];
    } else {
        T sums[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            sums[i] = values[i] + values[i + N / 2];
        return add_in_pairs(sums);
    }
}

#endif
