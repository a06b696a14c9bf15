/* Launch parameters of searchsorted. Plain C: both sides include it. */
#ifndef PULLBACK_CUDA_SEARCHSORTED_H
#define PULLBACK_CUDA_SEARCHSORTED_H
#include "kernels/strides/indexer.h"
#include "kernels/sorting/sort_keys.h"

typedef struct {
    const void *bounds; /* rows of `length` elements */
    const void *values;
    int64_t *out;
    int64_t length;
    int64_t bounds_steps[2];
    int64_t values_steps[2];
    int64_t out_steps[2];
    int64_t total;     /* values */
    int_divider width; /* of a row of values */
    sort_keys how;
    int32_t narrow;   /* whether the total is below 2^31 */
    int32_t right;    /* the last possible position, else the first */
    int32_t nan_last; /* NaN in bounds is larger than everything, else smaller */
} searchsorted_arguments;

#endif
