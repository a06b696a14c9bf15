/* How kernels find the elements of strided arrays by their number. Plain C: both sides include it.
 *
 * Elements are numbered in row-major order of a few dims. Dims that can be walked as one are merged
 * on the host, which also runs over those that are too many. */
#ifndef PULLBACK_CUDA_PLACES_H
#define PULLBACK_CUDA_PLACES_H
#include "integers.h"

#define PLACE_DIMS 12

/* A number to divide by: the quotient of any n < 2^31 is (n + (n * multiplier >> 32)) >> shift, as
 * in Granlund and Montgomery, "Division by invariant integers using multiplication", 1994. */
typedef struct {
    int64_t size;
    uint32_t multiplier;
    int32_t shift;
} place_divider;

typedef struct {
    int64_t total;
    int32_t ndim;   /* at least 1 */
    int32_t narrow; /* whether the total is below 2^31 */
    place_divider dims[PLACE_DIMS]; /* outermost first */
} place_dims;

#endif
