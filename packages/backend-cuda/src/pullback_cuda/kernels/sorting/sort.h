/* Sorts of rows. Plain C: both sides include it. */
#ifndef PULLBACK_CUDA_SORT_H
#define PULLBACK_CUDA_SORT_H
#include "kernels/strides/indexer.h"
#include "kernels/sorting/sort_keys.h"

#define SORT_SMALL 256   /* elements of a row whose ranks are counted */
#define SORT_MEDIUM 1024 /* of a row that a block sorts, with four elements in a thread */
#define SORT_LARGE 4096  /* and with sixteen */

/* Rows that blocks sort on their own. */
typedef struct {
    const void *input;
    void *values; /* or NULL */
    void *indices;
    int64_t n;
    int64_t count; /* of the first ones that are wanted */
    int64_t input_step;
    int64_t values_step;
    int64_t indices_step;
    int32_t index_bytes; /* 8, or 4 for positions alone */
    int32_t group;       /* threads for a row, where one block sorts several */
    sort_keys how;
    indexer_dims rows;
    int64_t input_rows[INDEXER_DIMS];
    int64_t values_rows[INDEXER_DIMS];
    int64_t indices_rows[INDEXER_DIMS];
} sort_rows_arguments;

/* The keys of long rows: before their sort, and after it. */
typedef struct {
    const void *input;
    void *values;   /* or NULL */
    void *indices;  /* int64 */
    void *keys[2];  /* contiguous, n of each row */
    void *order[2]; /* uint32 or uint64 */
    const int64_t
        *positions;     /* where the pairs of each row come from, or NULL: all of it in order */
    uint32_t *differ;   /* two words, 0 at first: the bits in which keys differ from the first; or
                          * NULL */
    int64_t n;          /* pairs of a row */
    int64_t length;     /* elements of a row */
    int64_t count;      /* of the first ones that are wanted */
    int64_t total;      /* elements of these rows: n, or count of each */
    int64_t first;      /* the number of the first one among all rows */
    int32_t wide;       /* positions have 64 bits */
    int32_t narrow;     /* whether the total is below 2^31 */
    int64_t input_step; /* along a row */
    int_divider row;    /* its length: n, or count */
    sort_keys how;
    indexer_dims where;                /* elements of all rows */
    int64_t input_steps[INDEXER_DIMS]; /* after the sort, 0 along a row */
    int64_t values_steps[INDEXER_DIMS];
    int64_t indices_steps[INDEXER_DIMS];
} sort_long_arguments;

#endif
