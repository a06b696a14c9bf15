// Vectorized loads and stores, and warp shuffles of structs.
#ifndef PULLBACK_CUDA_VECTORIZED_CUH
#define PULLBACK_CUDA_VECTORIZED_CUH

#include "kernels/common/kernel.cuh"

// A kernel with at least so many resident blocks on a multiprocessor, which limits its registers.
#ifdef PULLBACK_EMULATION
#define BUSY_KERNEL(name, Arguments, blocks) KERNEL(name, Arguments)
#else
#define BUSY_KERNEL(name, Arguments, blocks) \
    extern "C" __global__ void __launch_bounds__(256, blocks) \
        name(const __grid_constant__ Arguments args)
#endif

// Aligned to its whole size, so that it is read and written by one instruction.
template <class T, int N>
struct alignas(N * sizeof(T)) vector {
    T of[N];
};

template <int N, class T>
DEVICE vector<T, N> load_vector(const T *address) {
    return *reinterpret_cast<const vector<T, N> *>(address);
}

template <class T, int N>
DEVICE void store_vector(T *address, const vector<T, N> &elements) {
    *reinterpret_cast<vector<T, N> *>(address) = elements;
}

// How many elements 16 bytes hold.
template <class T>
struct vector_width {
    static constexpr int size = sizeof(T) < 16 ? (int)(16 / sizeof(T)) : 1;
};

// A struct of 4-byte words, seen as these.
template <class T>
union worded {
    static_assert(sizeof(T) % 4 == 0, "threads exchange whole words");
    T value;
    uint32_t words[sizeof(T) / 4];
};

// The value of the thread of the warp whose number differs in the bits of `distance`.
template <class T>
DEVICE T shuffle_xor(const T &value, int distance) {
    worded<T> sent, received;
    sent.value = value;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(T) / 4); i++)
        received.words[i] = __shfl_xor_sync(0xFFFFFFFFu, sent.words[i], distance);
    return received.value;
}

// The value of the thread `distance` before this one, among `width` threads; the first threads get
// their own.
template <class T>
DEVICE T shuffle_up(const T &value, int distance, int width) {
    worded<T> sent, received;
    sent.value = value;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(T) / 4); i++)
        received.words[i] = __shfl_up_sync(0xFFFFFFFFu, sent.words[i], distance, width);
    return received.value;
}

// The value of thread `lane` among `width` threads.
template <class T>
DEVICE T shuffle_from(const T &value, int lane, int width) {
    worded<T> sent, received;
    sent.value = value;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(T) / 4); i++)
        received.words[i] = __shfl_sync(0xFFFFFFFFu, sent.words[i], lane, width);
    return received.value;
}

#endif
