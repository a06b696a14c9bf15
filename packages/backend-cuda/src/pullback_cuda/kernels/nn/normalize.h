/* Launch parameters of the kernels that standardize rows, and of their derivatives. Plain C: both
 * sides include it.
 *
 * Elements are (samples, groups, channels of a group, inner elements of a channel); a row is what a
 * sample has of a group. Thread groups and chunks of rows are as in softmax.h. */
#ifndef PULLBACK_CUDA_NORMALIZE_H
#define PULLBACK_CUDA_NORMALIZE_H
#include "kernels/strides/coalesced_dims.h"

/* Statistics of rows are found by the block that writes them, or by a launch before, or given. */
enum normal_phase { ROWS_WHOLE = 0, ROWS_FIND = 1, ROWS_WRITE = 2, ROWS_GIVEN = 3 };

/* Blocks: along x rows, one for each thread group of the block; along y chunks. */
typedef struct pb_normal {
    const void *source;
    const void *grad;
    const void *mean; /* given */
    const void *scale;
    const void *weight; /* NULL: all 1 */
    const void *bias;   /* NULL: all 0 */
    void *out;
    void *means; /* found */
    void *variances;
    void *partial;      /* what every chunk of every row contributes */
    const void *shares; /* of the groups, where samples share their statistics */
    int64_t rows;
    int64_t length; /* of a row */
    int64_t chunk;  /* elements of a row that a block has, below 2^31 */
    int64_t chunks;
    pb_dim groups; /* only the size */
    pb_dim inner;
    int64_t mean_stride;       /* from sample to sample: 0 if they share their statistics */
    int64_t weight_strides[2]; /* of groups and channels */
    int64_t bias_strides[2];
    double eps;
    int32_t phase;
    int32_t vectorized;        /* not 0: elements are moved in vectors of 16 bytes */
    int32_t vectorized_weight; /* not 0: so are weight and bias */
    int32_t thread_bits;       /* threads of a row, as a power of two */
    int32_t group_bits;        /* likewise rows of a block */
} pb_normal;

/* The gradients of weight and bias: sums over the elements of each column, which is a channel of a
 * group. A thread group sums a column. */
typedef struct pb_normal_sums {
    const void *source;
    const void *grad;
    const void *mean;
    const void *scale;
    const void *weight;
    void *weight_out;
    void *bias_out;
    void *partial; /* a pair of sums of every chunk of every column */
    void *shares;  /* a pair of every group */
    int64_t columns;
    int64_t length; /* elements of a column */
    int64_t chunk;  /* below 2^31 */
    int64_t chunks;
    int64_t samples;
    pb_dim channels; /* only the size */
    pb_dim inner;
    int64_t mean_stride;
    int64_t weight_strides[2];
    int32_t thread_bits; /* as powers of two */
    int32_t group_bits;
    int32_t strided;
} pb_normal_sums;

#endif
