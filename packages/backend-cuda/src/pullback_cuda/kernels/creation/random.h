/* What the host tells the kernels that make numbers: the layout of the output, numbered in logical
 * order, and what the numbers are. */
#ifndef PULLBACK_CUDA_RANDOM_H
#define PULLBACK_CUDA_RANDOM_H
#include "kernels/common/elementwise_driver.h"

typedef struct {
    elementwise_arguments layout; /* only an output; `packs` is not 0: its elements lie in a row */
    uint64_t seed;
    uint64_t block; /* the one of four words that has the first number */
    uint32_t skip;  /* numbers of that block which are not wanted */
    int64_t low;    /* of integers */
    uint64_t span;
    uint64_t reciprocal; /* (2^64 - 1) / span */
    double scale;        /* of normal numbers */
} random_arguments;

#endif
