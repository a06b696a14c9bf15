// CUDA on the CPU: what device code needs, for a C++ compiler without CUDA.
//
// The threads of a block are fibers on one thread of the system; blocks run one after another.
// Only one launch runs at a time in an image, so launches from several threads are safe.
//
// What real hardware leaves undefined or forgives is an error here: it aborts the process with a
// message that names the kernel, the block and the thread.
//   - Threads that wait at different __syncthreads, or at one that others never reach. A thread
//     that has returned counts as one that never reaches it, although the hardware goes on.
//   - A warp function whose mask lacks the calling lane, or that the mask's lanes never all reach.
//     A lane that has returned is not waited for, as CUDA says. A value shuffled from a lane that
//     takes no part is 0xCDCD...
//   - A pointer that is not aligned to its type, which a load through int4 * needs; an index that
//     outside of an array of known length; a shift by too many bits; an integer division by
//     zero; a cast of a floating-point number to an integer type that cannot hold it.
// Dynamic shared memory is filled with 0xCD before every block, and so is static shared memory, if
// that of the whole image is small; else before every launch.
#ifndef PULLBACK_EMULATION_H
#define PULLBACK_EMULATION_H
#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static
#define __managed__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#ifndef __restrict__
#define __restrict__ __restrict
#endif

#include "vectors.h"

#include "threads.h"

#include "warps.h"

#include "atomics.h"

#include "intrinsics.h"

#include "kernels.h"

#include "undefined.h"

#endif
