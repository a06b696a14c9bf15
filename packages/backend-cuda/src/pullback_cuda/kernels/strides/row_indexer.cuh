// Offsets of the elements of rows that are written to the positions of keys.
#ifndef PULLBACK_CUDA_ROW_INDEXER_CUH
#define PULLBACK_CUDA_ROW_INDEXER_CUH
#include "kernels/indexing/indexed.h"
#include "kernels/strides/indexer.cuh"

// Load a key, a position or a winner, of 32 or 64 bits.
DEVICE int64_t load_number(const void *data, int64_t at, bool wide) {
    return wide ? static_cast<const int64_t *>(data)[at]
                : (int64_t)static_cast<const uint32_t *>(data)[at];
}

// Split a number into the rank of a key in the order of keys, and an element of its row.
DEVICE void split_number(const put_arguments &args, int64_t number, int64_t &turn,
                         int64_t &element) {
    if (args.row.total == 1) {
        turn = number;
        element = 0;
        return;
    }
    turn = quotient(number, args.row_total, args.narrow);
    element = number - turn * args.row.total;
}

// The position whose key comes in this turn.
DEVICE int64_t position_of(const put_arguments &args, int64_t turn) {
    return args.order == nullptr ? turn : load_number(args.order, turn, args.wide);
}

// Not inlined: kernels that look up many elements would grow too much.
__device__ __attribute__((noinline)) int64_t near_offset_of_dims(const put_arguments &args,
                                                                 int64_t position) {
    return offset_of(args.where, position, args.near_steps);
}

DEVICE int64_t near_offset(const put_arguments &args, int64_t position) {
    return args.where.ndim == 1 ? position * args.near_steps[0]
                                : near_offset_of_dims(args, position);
}

// The offsets of an element in a row, near and far.
DEVICE void row_offsets(const put_arguments &args, int64_t element, int64_t &near_at,
                        int64_t &far_at) {
    int64_t near_offset = 0, far_offset = 0;
    if (args.row.total > 1)
        unravel_index(args.row, element, [&](int d, int64_t at) {
            near_offset += at * args.row_near[d];
            far_offset += at * args.row_far[d];
        });
    near_at = near_offset;
    far_at = far_offset;
}

#endif
