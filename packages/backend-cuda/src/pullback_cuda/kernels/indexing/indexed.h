/* Elements that index arrays select. Plain C: both sides include it.
 *
 * "Near" is the array that has an element for every position, "far" the one that is indexed. */
#ifndef PULLBACK_CUDA_INDEXED_H
#define PULLBACK_CUDA_INDEXED_H
#include "kernels/strides/indexer.h"

#define INDEX_ARRAYS 4 /* of one launch; more are folded first */

/* The index arrays: for each the length of the far dim that it selects along, the dim's number for
 * messages, and how much one index more adds. */
typedef struct {
    int32_t count;
    int32_t negative; /* whether indices count from the end, too */
    int32_t folded;   /* one array of offsets, INT64_MIN where an index did not fit */
    int32_t dim[INDEX_ARRAYS];
    const void *index[INDEX_ARRAYS]; /* int64 */
    int64_t length[INDEX_ARRAYS];
    int64_t step[INDEX_ARRAYS];
    int64_t index_steps[INDEX_ARRAYS][INDEXER_DIMS];
    void *failure;
} index_arrays;

/* near = far, or far = near, element by element. */
typedef struct {
    indexer_dims where;
    int64_t near_steps[INDEXER_DIMS];
    int64_t far_steps[INDEXER_DIMS]; /* without what the indices add */
    index_arrays by;
    void *near_data;
    void *far_data;
} take_arguments;

/* keys[position] = what the position and its indices add up to, and `nowhere` where one does not
 * fit. A key identifies a target. */
typedef struct {
    indexer_dims where;
    int64_t far_steps[INDEXER_DIMS]; /* of keys */
    index_arrays by;
    int64_t base;
    int64_t nowhere;
    void *keys;   /* uint32, uint64, or int64 offsets to add to */
    void *winner; /* or NULL; 1 + the last position of each key; words as large as keys */
    int32_t adds; /* to offsets that are there */
} keys_arguments;

/* Words to set to zero. */
typedef struct {
    void *data;
    int64_t count; /* of 4 bytes */
} clear_arguments;

/* Rows of near elements that are written to the far positions of their keys. */
typedef struct {
    int64_t count;   /* positions */
    int64_t nowhere; /* the key of what goes nowhere */
    int64_t scale;   /* the far offset of a key is key * scale + base */
    int64_t base;
    const void *keys;
    const void *order;  /* positions in the order of their keys; NULL: as they are numbered */
    const void *winner; /* 1 + the position that may write to a key; NULL: all may */
    void *near_data;
    void *far_data;
    void *partial;      /* sums of chunks of long runs of equal keys, a row each */
    int32_t wide;       /* keys, order and winner have 64 bits, else 32 */
    int32_t mode;       /* of enum reduce_mode */
    int32_t stage;      /* 1: runs and their chunks; 2: the chunks of a run */
    int32_t narrow;     /* whether count * row.total is below 2^31 */
    indexer_dims where; /* positions */
    int64_t near_steps[INDEXER_DIMS];
    indexer_dims row; /* elements of a row */
    int_divider row_total;
    int64_t row_near[INDEXER_DIMS];
    int64_t row_far[INDEXER_DIMS];
} put_arguments;

/* As the parameter of scatter_reduce, and more. */
enum reduce_mode {
    REDUCE_PRODUCT = 0,
    REDUCE_LARGER = 1,
    REDUCE_SMALLER = 2,
    REDUCE_SUM = 3,
    REDUCE_LAST = 4
};

/* Equal keys that one thread reduces in order; longer runs are split. */
#define RUN_CHUNK 512

#endif
