/* Launch parameters of random number kernels: the layout of the output, numbered in logical order,
 * and the distribution. */
#ifndef PULLBACK_CUDA_RANDOM_H
#define PULLBACK_CUDA_RANDOM_H
#include "kernels/common/elementwise_driver.h"

typedef struct {
    elementwise_arguments layout; /* only an output; `vectors` is not 0: it is contiguous */
    uint64_t seed;
    uint64_t block; /* the one of four words that has the first number */
    uint32_t skip;  /* numbers of that block to leave out */
    int64_t low;    /* of integers */
    uint64_t span;
    uint64_t reciprocal; /* (2^64 - 1) / span */
    double scale;        /* of normal numbers */
} random_arguments;

#endif
