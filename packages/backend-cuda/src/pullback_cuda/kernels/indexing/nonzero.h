/* Coordinates of elements that are not zero. Plain C: both sides include it. */
#ifndef PULLBACK_CUDA_NONZERO_H
#define PULLBACK_CUDA_NONZERO_H
#include "kernels/strides/indexer.h"

#define NONZERO_DIMS 64
#define NONZERO_TILE 2048 /* elements of a block in one step */

typedef struct {
    const void *input;
    int64_t *out;    /* by row and dim */
    int64_t *counts; /* of each block */
    void *failure;
    int64_t rows; /* of the output */
    int64_t out_steps[2];
    int64_t total;       /* elements */
    int64_t chunk;       /* of a block */
    uint64_t matters[2]; /* the bits of an element of which one is set unless it is zero */
    int32_t narrow;      /* whether the total is below 2^31 */
    int32_t contiguous;
    int32_t bytes; /* of an element */
    int32_t ndim;
    int_divider dims[NONZERO_DIMS];
    int64_t input_steps[NONZERO_DIMS];
} nonzero_arguments;

#endif
