/* Stable radix sort of rows of pairs, digit by digit. Plain C: both sides include it.
 *
 * A pair is an unsigned key and the position in its row where it came from. */
#ifndef PULLBACK_CUDA_RADIX_SORT_H
#define PULLBACK_CUDA_RADIX_SORT_H
#include "math/integers.h"

#define RADIX_DIGITS 256  /* values of a digit, which has 8 bits; as many as a block has threads */
#define RADIX_TILE_4 4096 /* keys of 4 bytes in a tile of a block */
#define RADIX_TILE_8 2048 /* and keys of 8 bytes */

typedef struct {
    void *keys[2]; /* rows * n; a pass reads one buffer and writes the other */
    void *order[2];
    uint32_t *counts;       /* by row, digit and block */
    uint64_t *starts;       /* the same: where the block's keys go, from the start of their digit */
    uint64_t *totals;       /* by row and digit */
    const uint32_t *differ; /* two words: the bits in which keys differ, as passes over digits of
                             * which all are the same are left out; or NULL */
    int64_t n;
    int64_t rows;
    int64_t chunk;  /* keys of a block */
    int64_t blocks; /* of a row */
    int32_t digit;  /* the number of the pass */
} radix_arguments;

#endif
