// Several neighbouring elements that are moved at once, and values that go from thread to thread.
#ifndef PULLBACK_CUDA_PACKS_CUH
#define PULLBACK_CUDA_PACKS_CUH

#include "kernels/common/kernel.cuh"

// A kernel of which a multiprocessor shall hold at least so many blocks at once, which limits its
// registers.
#ifdef PULLBACK_EMULATION
#define BUSY_KERNEL(name, Arguments, blocks) KERNEL(name, Arguments)
#else
#define BUSY_KERNEL(name, Arguments, blocks) \
    extern "C" __global__ void __launch_bounds__(256, blocks) \
        name(const __grid_constant__ Arguments args)
#endif

// Aligned to its whole size, so that it is read and written by one instruction.
template <class T, int N>
struct alignas(N * sizeof(T)) pack {
    T of[N];
};

template <int N, class T>
DEVICE pack<T, N> load_pack(const T *place) {
    return *reinterpret_cast<const pack<T, N> *>(place);
}

template <class T, int N>
DEVICE void store_pack(T *place, const pack<T, N> &elements) {
    *reinterpret_cast<pack<T, N> *>(place) = elements;
}

// How many elements 16 bytes hold.
template <class T>
struct packing {
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

// The value of the thread `distance` before this one, among `width` threads; its own for the first.
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
