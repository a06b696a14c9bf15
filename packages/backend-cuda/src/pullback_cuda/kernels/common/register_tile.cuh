// Elements of lines that lie in the registers of their lanes.
#ifndef PULLBACK_CUDA_ITEMS_CUH
#define PULLBACK_CUDA_ITEMS_CUH

#include "kernels/common/dtypes.cuh"
#include "kernels/common/vectorized.cuh"

// As many as a thread holds of each input.
template <class T>
struct held {
    static constexpr int items = sizeof(T) == 8 ? 8 : 16;
};

// Where the elements lie that a lane is given of a line, from the first one it may have.
struct line_part {
    int lane;
    int lanes;
    int left; // elements up to the end of the line, or of the chunk
    int64_t stride;
    bool packed;
};

// The others get a value that contributes nothing.
template <int ITEMS, class T>
DEVICE void load_items(const T *place, const line_part &part,
                       typename traits<T>::compute (&items)[ITEMS],
                       typename traits<T>::compute nothing) {
    constexpr int PACK = packing<T>::size;
    if (part.packed) {
#pragma unroll
        for (int i = 0; i < ITEMS; i += PACK) {
            const int at = i * part.lanes + part.lane * PACK;
            if (at < part.left) {
                pack<T, PACK> loaded = load_pack<PACK>(place + at);
#pragma unroll
                for (int j = 0; j < PACK; j++)
                    items[i + j] = widen(loaded.of[j]);
            } else {
#pragma unroll
                for (int j = 0; j < PACK; j++)
                    items[i + j] = nothing;
            }
        }
    } else {
        // One address at a time: registers are short.
        place += part.lane * part.stride;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            items[i] = i * part.lanes + part.lane < part.left ? widen(*place) : nothing;
            place += part.lanes * part.stride;
        }
    }
}

template <int ITEMS, class T>
DEVICE void store_items(T *place, const line_part &part,
                        const typename traits<T>::compute (&items)[ITEMS]) {
    constexpr int PACK = packing<T>::size;
    if (part.packed) {
#pragma unroll
        for (int i = 0; i < ITEMS; i += PACK) {
            const int at = i * part.lanes + part.lane * PACK;
            if (at < part.left) {
                pack<T, PACK> stored;
#pragma unroll
                for (int j = 0; j < PACK; j++)
                    stored.of[j] = narrow<T>(items[i + j]);
                store_pack(place + at, stored);
            }
        }
    } else {
        place += part.lane * part.stride;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            if (i * part.lanes + part.lane < part.left)
                *place = narrow<T>(items[i]);
            place += part.lanes * part.stride;
        }
    }
}

// The number of an item among the elements of the part.
template <int PACK>
DEVICE int item_number(const line_part &part, int item) {
    if (part.packed)
        return item / PACK * PACK * part.lanes + part.lane * PACK + item % PACK;
    return item * part.lanes + part.lane;
}

#endif
