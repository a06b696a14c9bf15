/* Dimensions that a kernel walks through, as the host describes them. Plain C: both sides include
 * it.
 *
 * Axes are listed from the innermost one, whose neighbours lie closest, outwards. A number counts
 * the positions of all of them, those of the first axis fastest. */
#ifndef PULLBACK_CUDA_AXES_H
#define PULLBACK_CUDA_AXES_H
#include "math/integers.h"

/* Strides count elements, of as many operands as the kernel has. The multiplier and the shift are
 * for divisions by the size: see find_divider of arrays.pxd. */
typedef struct pb_axis {
    int64_t size;
    int64_t strides[3];
    uint32_t multiplier;
    uint32_t shift;
} pb_axis;

#endif
