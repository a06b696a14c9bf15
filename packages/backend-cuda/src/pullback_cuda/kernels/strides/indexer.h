/* How kernels find the elements of strided arrays by their number. Plain C: both sides include it.
 *
 * Elements are numbered in row-major order of a few dims. Dims that can be walked as one are merged
 * on the host, which also runs over those that are too many. */
#ifndef PULLBACK_CUDA_PLACES_H
#define PULLBACK_CUDA_PLACES_H
#include "math/integers.h"

#define PLACE_DIMS 12

/* A number to divide by, as find_divider of arrays.pxd prepares it. */
typedef struct {
    int64_t size;
    uint32_t multiplier;
    uint32_t shift;
} place_divider;

typedef struct {
    int64_t total;
    int32_t ndim;                   /* at least 1 */
    int32_t narrow;                 /* whether the total is below 2^31 */
    place_divider dims[PLACE_DIMS]; /* outermost first */
} place_dims;

#endif
