/* The same elements in another order, or cut to a triangle. Plain C: both sides include it. */
#ifndef PULLBACK_CUDA_REARRANGE_H
#define PULLBACK_CUDA_REARRANGE_H
#include "kernels/strides/indexer.h"

typedef struct {
    void *out;
    const void *input;
    indexer_dims where;
    int64_t out_steps[INDEXER_DIMS];
    int64_t input_steps[INDEXER_DIMS];
} flip_arguments;

typedef struct {
    void *out;
    const void *input;
    int64_t total; /* elements, or vectors of them where these are contiguous */
    int64_t diagonal;
    int32_t upper;
    int32_t vector;      /* elements of a vector of 16 bytes, else 1 */
    int32_t narrow;      /* whether the total is below 2^31 */
    int_divider columns; /* of elements or vectors */
    int_divider rows;    /* of a matrix */
    int64_t out_step;    /* along a row */
    int64_t input_step;
    indexer_dims where; /* rows of all matrices */
    int64_t out_steps[INDEXER_DIMS];
    int64_t input_steps[INDEXER_DIMS];
} triangle_arguments;

#endif
