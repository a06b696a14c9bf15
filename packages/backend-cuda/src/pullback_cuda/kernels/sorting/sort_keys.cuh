// Elements as unsigned numbers in the wanted order: NaN is the largest, and both zeros are equal.
#ifndef PULLBACK_CUDA_SORT_KEYS_CUH
#define PULLBACK_CUDA_SORT_KEYS_CUH
#include "kernels/common/kernel.cuh"
#include "kernels/sorting/sort_keys.h"

// The bits of element number `at`. Key has at least as many bits as an element.
template <class Key>
DEVICE Key load_bits(const void *data, int64_t at, int bytes) {
    if (sizeof(Key) == 8 && bytes == 8)
        return (Key) static_cast<const uint64_t *>(data)[at];
    if (bytes == 4)
        return (Key) static_cast<const uint32_t *>(data)[at];
    if (bytes == 2)
        return (Key) static_cast<const uint16_t *>(data)[at];
    return (Key) static_cast<const uint8_t *>(data)[at];
}

template <class Key>
DEVICE void store_bits(void *data, int64_t at, int bytes, Key bits) {
    if (sizeof(Key) == 8 && bytes == 8)
        static_cast<uint64_t *>(data)[at] = (uint64_t)bits;
    else if (bytes == 4)
        static_cast<uint32_t *>(data)[at] = (uint32_t)bits;
    else if (bytes == 2)
        static_cast<uint16_t *>(data)[at] = (uint16_t)bits;
    else
        static_cast<uint8_t *>(data)[at] = (uint8_t)bits;
}

template <class Key>
struct key_maker {
    Key all, sign, flip, infinity;
    int kind;

    DEVICE key_maker(const sort_keys &how)
        : all((Key)(UINT64_MAX >> (64 - 8 * how.bytes))), sign((Key)1 << (8 * how.bytes - 1)),
          flip((Key)how.flip), infinity((Key)how.infinity), kind(how.kind) {}

    DEVICE Key key_of(Key bits) const {
        if (kind == SORT_SIGNED)
            bits ^= sign;
        if (kind == SORT_FLOATING) {
            // A negative number's bits are all turned, of the others the sign.
            const Key size = bits & (sign - 1);
            bits = bits & sign ? ~bits & all : bits | sign;
            bits = size == 0 ? sign : size > infinity ? all : bits;
        }
        return bits ^ flip;
    }

    // Whether elements with different bits have this key.
    DEVICE bool is_shared(Key key) const {
        key ^= flip;
        return kind == SORT_FLOATING && (key == all || key == sign);
    }

    // The element of a key that is not shared.
    DEVICE Key bits_of(Key key) const {
        key ^= flip;
        if (kind == SORT_SIGNED)
            return key ^ sign;
        if (kind == SORT_FLOATING)
            return key & sign ? key ^ sign : ~key & all;
        return key;
    }

    DEVICE bool is_nan(Key key) const { return kind == SORT_FLOATING && (key ^ flip) == all; }
};

#endif
