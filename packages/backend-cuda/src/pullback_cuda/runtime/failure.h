/* The record in which a kernel reports bad input to the host. Plain C: both sides include it.
 *
 * The record is in host memory that the device can write to. Of all threads that report, one
 * wins: it sets `claimed`, writes `index` and `size`, and `code` last. So the host, which reads
 * `code` first, finds the rest complete where that is not 0. */
#ifndef PULLBACK_CUDA_FAILURE_H
#define PULLBACK_CUDA_FAILURE_H
#include "math/integers.h"

/* What was found; of an index of a dim, its number is added. */
enum {
    FAILURE_ZERO_DIVISOR = 1,
    FAILURE_COUNT = 2,  /* `index` elements where there were `size` */
    FAILURE_TARGET = 3, /* the class `index` of `size` */
    FAILURE_INDEX = 4
};

struct failure_record {
    int32_t code;    /* 0: nothing was reported; else one of PB_E_* of abi.h */
    int32_t claimed; /* not 0: a thread has begun to report this */
    int64_t index;   /* what was found, such as the index that is out of range */
    int64_t size;    /* the limit, such as the dim's size */
};

#endif
