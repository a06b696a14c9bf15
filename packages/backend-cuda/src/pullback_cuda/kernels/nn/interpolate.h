/* Weighted sums of elements along a dim, and their adjoint. Plain C: both sides include it. */
#ifndef PULLBACK_CUDA_RESAMPLE_H
#define PULLBACK_CUDA_RESAMPLE_H
#include "kernels/strides/indexer.h"

typedef struct {
    void *out;
    const void *source;
    const int64_t *indices; /* by tap and place */
    const void *weights;    /* the same, or NULL for ones */
    void *keys;             /* indices, to be sorted or sorted; NULL: all taps are walked */
    const void *order;      /* which tap and place each key is of */
    void *starts;           /* the first key of each element along the dim, and the end */
    void *failure;
    int64_t taps;
    int64_t places;
    int64_t size; /* of the dim that the indices are for */
    int64_t inner;
    int32_t dim;      /* its number, for messages */
    int32_t wide;     /* keys, order and starts have 64 bits, else 32 */
    place_dims where; /* outer, along, inner: of what comes out */
} interpolate_arguments;

#endif
