/* Dims over which a kernel iterates. Plain C: both sides include it.
 *
 * The innermost dim, with the smallest stride, comes first. Positions are numbered with the first
 * dim fastest. */
#ifndef PULLBACK_CUDA_COALESCED_DIMS_H
#define PULLBACK_CUDA_COALESCED_DIMS_H
#include "math/integers.h"

/* Strides count elements, of as many operands as the kernel has. The multiplier and the shift are
 * for divisions by the size: see find_divider of arrays.pxd. */
typedef struct pb_dim {
    int64_t size;
    int64_t strides[3];
    uint32_t multiplier;
    uint32_t shift;
} pb_dim;

#endif
