/* Launch parameters of pooling over the last one to three dims of contiguous arrays. Plain C: both
 * sides include it. */
#ifndef PULLBACK_CUDA_POOLING_H
#define PULLBACK_CUDA_POOLING_H
#include "kernels/strides/indexer.h"

#define WINDOW_RANK 3
#define WINDOW_LARGE 128 /* elements of a window from which a warp shares it */

/* The windows of one dim: window i begins at i * stride - padding. */
typedef struct {
    int64_t size;
    int64_t count;
    int64_t kernel; /* 0: window i is floor(i * size / count) to ceil((i + 1) * size / count) */
    int64_t stride;
    int64_t padding;
    int64_t dilation;
} window_side;

typedef struct {
    void *out;
    int64_t *indices;
    const void *source;
    window_side sides[WINDOW_RANK];
    int64_t plane;      /* elements of one */
    int64_t windows;    /* of a plane */
    double divisor;     /* 0: the number of elements of the window */
    int32_t padded;     /* padding counts as elements */
    int32_t large;      /* a warp for each window, else a thread */
    indexer_dims where; /* planes and three dims of the output */
} pooling_arguments;

#endif
