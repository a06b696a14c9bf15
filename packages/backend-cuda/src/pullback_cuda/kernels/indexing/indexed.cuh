// Offsets that the indices of a position select.
#ifndef PULLBACK_CUDA_INDEXED_CUH
#define PULLBACK_CUDA_INDEXED_CUH
#include "kernels/indexing/indexed.h"
#include "kernels/strides/indexer.cuh"

// Report an index that is out of range of a dim.
DEVICE void report_index(void *failure, int64_t index, int32_t dim, int64_t size) {
    report(failure, FAILURE_INDEX + dim, PB_E_INDEX, index, size);
}

// Positions that a thread looks up together, so that their loads overlap.
#define POSITIONS_AT_ONCE 4

// A position's far offset, and its indices or where they are. COUNT is a constant, so that all stay
// in registers; arrays that are not there have the offset and the index 0.
template <int COUNT>
struct looked_up {
    int64_t far;
    int64_t index[COUNT];
    bool is_there;
};

template <int COUNT, class Also>
DEVICE void look_up(const indexer_dims &where, const int64_t *far_steps, const index_arrays &by,
                    int64_t number, looked_up<COUNT> &found, Also also) {
    found.far = 0;
#pragma unroll
    for (int k = 0; k < COUNT; k++)
        found.index[k] = 0;
    unravel_index(where, number, [&](int d, int64_t at) {
        found.far += at * far_steps[d];
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            if (k < by.count)
                found.index[k] += at * by.index_steps[k][d];
        also(d, at);
    });
}

template <int COUNT>
DEVICE void load_indices(const index_arrays &by, looked_up<COUNT> &found) {
#pragma unroll
    for (int k = 0; k < COUNT; k++)
        found.index[k] = k < by.count && found.is_there
                             ? static_cast<const int64_t *>(by.index[k])[found.index[k]]
                             : 0;
}

// Add what the indices select to the far offset; a position of which one does not fit is not there.
template <int COUNT>
DEVICE void add_indices(const index_arrays &by, looked_up<COUNT> &found) {
    if (!found.is_there)
        return;
    if (by.folded) {
        found.far += found.index[0];
        found.is_there = found.index[0] != INT64_MIN;
        return;
    }
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
        if (k >= by.count)
            break;
        const int64_t index = found.index[k], length = by.length[k];
        if (index < (by.negative ? -length : 0) || index >= length) {
            report_index(by.failure, index, by.dim[k], length);
            found.is_there = false;
            return;
        }
        found.far += (index < 0 ? index + length : index) * by.step[k];
    }
}

#endif
