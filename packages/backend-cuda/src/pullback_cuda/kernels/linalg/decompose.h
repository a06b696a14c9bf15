/* Launch parameters of what decompositions need beside cuSOLVER. */
#ifndef PULLBACK_CUDA_DECOMPOSE_H
#define PULLBACK_CUDA_DECOMPOSE_H
#include "math/integers.h"

/* Looks for elements that are not finite in `batch` packed matrices of `count` real numbers each.
 * flags: 0, 1 for a matrix with infinities, 2 for one with NaN; such a matrix is set to 0. */
struct screen_arguments {
    void *matrices;
    int32_t *flags;
    int64_t batch, count;
};

/* Looks for NaN on the diagonals of packed n x n matrices; a 0 in codes becomes its number. */
struct diagonal_arguments {
    const void *matrices;
    int32_t *codes;
    int64_t batch, n;
};

/* codes are those of the library, and become 0 where there is a result, and 1 where there is none.
 * info, unless null, gets what the caller sees: the library's code, or that of the flag. */
struct settle_arguments {
    int32_t *codes;
    const int32_t *flags; /* or null */
    int32_t *info;
    int64_t batch, info_stride;
    int32_t of_infinity, of_nan;
};

/* Columns of a product of reflections; strides count elements. */
struct reflections_arguments {
    void *out;
    const void *vectors;
    const void *tau;
    int64_t batch, rows, columns, count;
    int64_t out_strides[3], vector_strides[3], tau_strides[2];
};

struct swaps_arguments {
    int64_t *out;
    const int32_t *swaps;
    void *failure;
    int64_t batch, rows, count;
    int64_t out_strides[2], swap_strides[2];
};

/* Packed complex vectors from real ones: of a conjugate pair of values, one column has the real
 * parts and the next one the imaginary parts. */
struct pairs_arguments {
    void *out;
    const void *values;
    const void *vectors;
    int64_t batch, n;
};

#endif
