/* The first few elements of long rows. Plain C: both sides include it. */
#ifndef PULLBACK_CUDA_TOPK_H
#define PULLBACK_CUDA_TOPK_H
#include "kernels/strides/indexer.h"
#include "kernels/sorting/sort_keys.h"

#define SELECT_TILE 2048 /* elements of a block in one step */
#define SELECT_DIGITS 256

typedef struct {
    const void *input;
    int64_t input_step; /* along a row */
    int64_t n;          /* elements of a row */
    int64_t count;      /* of the first ones that are wanted */
    int64_t chunk;      /* elements of a block */
    int64_t blocks;     /* of a row */
    int64_t first_row;
    uint64_t *limits;    /* by row: the digits of the last wanted key that are known */
    int64_t *left;       /* by row: how many are wanted of the keys with these digits */
    uint64_t *histogram; /* by row and digit, zero before each pass */
    int64_t *tallies;    /* by row and block: elements below the limit, and elements at it */
    void *keys;          /* by row: those that are wanted, and their positions */
    int64_t *positions;
    int32_t digit; /* the number of the pass */
    sort_keys how;
    indexer_dims rows;
    int64_t input_rows[INDEXER_DIMS];
} select_arguments;

#endif
