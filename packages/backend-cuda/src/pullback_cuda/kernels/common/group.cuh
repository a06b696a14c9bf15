// Groups of threads of a block: which threads share a line of elements, and reductions over them.
#ifndef PULLBACK_CUDA_GROUP_CUH
#define PULLBACK_CUDA_GROUP_CUH

#include "kernels/common/vectorized.cuh"

// A block has 2^group_bits groups of 2^thread_bits threads, one group for each line. The threads of
// a group are neighbours; if `strided`, threads of the same rank are, because neighbouring elements
// belong to different lines.
struct thread_groups {
    int thread_bits;
    int group_bits;
    bool strided;

    // The number of this thread in its group.
    DEVICE int rank() const {
        return strided ? (int)threadIdx.x >> group_bits
                       : (int)threadIdx.x & ((1 << thread_bits) - 1);
    }
    // The number of this thread's group in the block.
    DEVICE int group() const {
        return strided ? (int)threadIdx.x & ((1 << group_bits) - 1)
                       : (int)threadIdx.x >> thread_bits;
    }
};

// Reduce one value of each thread over its group. All threads of a group get the same bits if the
// operation is commutative. Every thread of the block must call this. Shared memory must have room
// for a value of each thread.
template <class T, class Combine>
DEVICE T group_reduce(const thread_groups &threads, T value, Combine combine) {
    DYNAMIC_SHARED(T, shared);
    const int thread = threadIdx.x;
    if (!threads.strided) {
        const int width = threads.thread_bits < 5 ? 1 << threads.thread_bits : 32;
#pragma unroll 1
        for (int distance = width >> 1; distance; distance >>= 1)
            value = combine(value, shuffle_xor(value, distance));
        if (threads.thread_bits <= 5)
            return value;
    }
    // What is left: one value of each warp of a group, or, if strided, of each thread.
    const int values = threads.strided ? 1 << threads.thread_bits : 1 << (threads.thread_bits - 5);
    const int apart = threads.strided ? 1 << threads.group_bits : 1;
    const int first = threads.strided ? thread & (apart - 1) : (thread >> 5) & ~(values - 1);
    if (values == 1)
        return value;
    if (threads.strided || (thread & 31) == 0)
        shared[threads.strided ? thread : thread >> 5] = value;
    __syncthreads();
    value = shared[first];
#pragma unroll 1
    for (int k = 1; k < values; k++)
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

// Pairwise sum of N values, a power of two: errors grow least there.
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
