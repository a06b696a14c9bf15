/* Interpolation along a dim, as weighted sums of taps, forward and backward. Plain C: both sides
 * include it. */
#ifndef PULLBACK_CUDA_INTERPOLATE_H
#define PULLBACK_CUDA_INTERPOLATE_H
#include "kernels/strides/indexer.h"

typedef struct {
    void *out;
    const void *source;
    const int64_t *indices; /* by tap and output position */
    const void *weights;    /* the same, or NULL for ones */
    void *keys;             /* indices, before or after their sort; NULL: all taps are searched */
    const void *order;      /* the tap and position of each key, as one number */
    void *starts;           /* the first key of each element along the dim, and the end */
    void *failure;
    int64_t taps;
    int64_t positions;
    int64_t size; /* of the dim that the indices are for */
    int64_t inner;
    int32_t dim;        /* its number, for messages */
    int32_t wide;       /* keys, order and starts have 64 bits, else 32 */
    indexer_dims where; /* outer, along, inner: of the output */
} interpolate_arguments;

#endif
