/* Offsets of numbered elements of strided arrays. Plain C: both sides include it.
 *
 * Elements are numbered in row-major order of at most INDEXER_DIMS dims. The host merges dims where
 * it can, and iterates over those beyond that many. */
#ifndef PULLBACK_CUDA_INDEXER_H
#define PULLBACK_CUDA_INDEXER_H
#include "math/integers.h"

#define INDEXER_DIMS 12

/* A number to divide by, as find_divider of arrays.pxd prepares it. */
typedef struct {
    int64_t size;
    uint32_t multiplier;
    uint32_t shift;
} int_divider;

typedef struct {
    int64_t total;
    int32_t ndim;                   /* at least 1 */
    int32_t narrow;                 /* whether the total is below 2^31 */
    int_divider dims[INDEXER_DIMS]; /* outermost first */
} indexer_dims;

#endif
