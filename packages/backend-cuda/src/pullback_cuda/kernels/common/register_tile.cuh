// Elements of a line in the registers of a group of threads.
#ifndef PULLBACK_CUDA_REGISTER_TILE_CUH
#define PULLBACK_CUDA_REGISTER_TILE_CUH

#include "kernels/common/dtypes.cuh"
#include "kernels/common/vectorized.cuh"

// How many elements of each input a thread holds.
template <class T>
struct register_tile {
    static constexpr int items = sizeof(T) == 8 ? 8 : 16;
};

// This thread's share of a line: element `rank` and every `group_size`-th one after it, or vectors.
struct line_part {
    int rank;
    int group_size;
    int left; // elements up to the end of the line, or of the chunk
    int64_t stride;
    bool vectorized;
};

// Elements beyond the end become `nothing`, a value that contributes nothing.
template <int ITEMS, class T>
DEVICE void load_tile(const T *address, const line_part &part,
                      typename traits<T>::compute (&items)[ITEMS],
                      typename traits<T>::compute nothing) {
    constexpr int WIDTH = vector_width<T>::size;
    if (part.vectorized) {
#pragma unroll
        for (int i = 0; i < ITEMS; i += WIDTH) {
            const int at = i * part.group_size + part.rank * WIDTH;
            if (at < part.left) {
                vector<T, WIDTH> loaded = load_vector<WIDTH>(address + at);
#pragma unroll
                for (int j = 0; j < WIDTH; j++)
                    items[i + j] = widen(loaded.of[j]);
            } else {
#pragma unroll
                for (int j = 0; j < WIDTH; j++)
                    items[i + j] = nothing;
            }
        }
    } else {
        // One address at a time: registers are short.
        address += part.rank * part.stride;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            items[i] = i * part.group_size + part.rank < part.left ? widen(*address) : nothing;
            address += part.group_size * part.stride;
        }
    }
}

template <int ITEMS, class T>
DEVICE void store_tile(T *address, const line_part &part,
                       const typename traits<T>::compute (&items)[ITEMS]) {
    constexpr int WIDTH = vector_width<T>::size;
    if (part.vectorized) {
#pragma unroll
        for (int i = 0; i < ITEMS; i += WIDTH) {
            const int at = i * part.group_size + part.rank * WIDTH;
            if (at < part.left) {
                vector<T, WIDTH> stored;
#pragma unroll
                for (int j = 0; j < WIDTH; j++)
                    stored.of[j] = narrow<T>(items[i + j]);
                store_vector(address + at, stored);
            }
        }
    } else {
        address += part.rank * part.stride;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            if (i * part.group_size + part.rank < part.left)
                *address = narrow<T>(items[i]);
            address += part.group_size * part.stride;
        }
    }
}

// The index in the line of an item.
template <int WIDTH>
DEVICE int tile_element(const line_part &part, int item) {
    if (part.vectorized)
        return item / WIDTH * WIDTH * part.group_size + part.rank * WIDTH + item % WIDTH;
    return item * part.group_size + part.rank;
}

#endif
