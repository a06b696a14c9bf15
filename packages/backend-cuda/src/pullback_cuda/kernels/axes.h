/* Dimensions that a kernel walks through, as the host describes them. Plain C: both sides include
 * it.
 *
 * Axes are listed from the innermost one, whose neighbours lie closest, outwards. A number counts
 * the positions of all of them, those of the first axis fastest. */
#ifndef PULLBACK_CUDA_AXES_H
#define PULLBACK_CUDA_AXES_H
#include "integers.h"

/* Strides count elements, of as many operands as the kernel has. A number n below 2^31 divided by
 * the size is (high half of n * multiplier, plus n) >> shift: see write_axis of axes.pyx. */
typedef struct pb_axis {
    int64_t size;
    int64_t strides[3];
    uint32_t multiplier;
    uint32_t shift;
} pb_axis;

#endif
