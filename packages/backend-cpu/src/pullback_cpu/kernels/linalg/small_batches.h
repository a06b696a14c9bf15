/* Decompositions of many small matrices at once: a vector has the same element of each.
 *
 * small_batches_of.h has the code and is included here once for each element type. Vectors are
 * those of GCC's extension, as wide as the instruction set's. */
#ifndef PULLBACK_CPU_SMALL_BATCHES_H
#define PULLBACK_CPU_SMALL_BATCHES_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#define PB_SMALL_ROWS 16 /* and columns, at most */

#if defined(__GNUC__)
/* Without AVX, LAPACK is about as fast as rotations. */
#if defined(__AVX__) || !defined(__x86_64__)
#define PB_HAS_SMALL_ROTATIONS 1
#else
#define PB_HAS_SMALL_ROTATIONS 0
#endif
#define PB_HAS_SMALL_BATCHES 1
#define PB_SMALL_APART __attribute__((noinline)) /* the code of a copy costs more than a call */
#if defined(__AVX512F__)
#define PB_SMALL_BYTES 64
#elif defined(__AVX__)
#define PB_SMALL_BYTES 32
#else
#define PB_SMALL_BYTES 16
#endif
#define PB_SMALL_JOIN_(a, b) a##b
#define PB_SMALL_JOIN(a, b) PB_SMALL_JOIN_(a, b)
#define PB_SMALL_OF(name) PB_SMALL_JOIN(name, PB_SUFFIX)

/* Pairs of a round robin of an even number of rows: in round r each row r + k meets r - k, modulo
 * the number of rows but the last, which meets r. */
static inline void pb_small_meet(int64_t rows, int64_t round, int64_t (*pairs)[2]) {
    int64_t down = round, up = round;
    pairs[0][0] = round, pairs[0][1] = rows - 1;
    for (int64_t k = 1; k < rows / 2; k++) {
        up = up == rows - 2 ? 0 : up + 1;
        down = down == 0 ? rows - 2 : down - 1;
        pairs[k][0] = up, pairs[k][1] = down;
    }
}

#define PB_NUMBER float
#define PB_BITS int32_t
#define PB_ROOT sqrtf
#define PB_FUSED fmaf
#define PB_SUFFIX _f32
#include "kernels/linalg/small_batches_of.h"
#define PB_NUMBER double
#define PB_BITS int64_t
#define PB_ROOT sqrt
#define PB_FUSED fma
#define PB_SUFFIX _f64
#include "kernels/linalg/small_batches_of.h"
#else
#define PB_HAS_SMALL_BATCHES 0
#define pb_small_lanes_f32() 1
#define pb_small_lanes_f64() 1
#define pb_small_lu_f32(...) ((void)0)
#define pb_small_lu_f64(...) ((void)0)
#define pb_small_cholesky_f32(...) ((void)0)
#define pb_small_cholesky_f64(...) ((void)0)
#define PB_HAS_SMALL_ROTATIONS 0
#endif
#if !PB_HAS_SMALL_ROTATIONS
#define pb_small_eigh_f32(...) ((void)0)
#define pb_small_eigh_f64(...) ((void)0)
#define pb_small_svdvals_f32(...) ((void)0)
#define pb_small_svdvals_f64(...) ((void)0)
#endif
#endif
