/* Launch parameters of matrix products and copies of matrices. */
#ifndef PULLBACK_CUDA_MATMUL_H
#define PULLBACK_CUDA_MATMUL_H
#include "math/integers.h"

/* Matrices (batch, rows, columns); strides count elements, in this order of dims. */
struct product_arguments {
    void *out;
    const void *left;
    const void *right;
    int64_t batch, rows, inner, columns;
    int64_t out_strides[3], left_strides[3], right_strides[3];
};

/* A copy of matrices from one layout to another; without `from`, of the number `fill`.
 * Matrices whose `info` is not 0 are written as NaN; with `lower` what is above the diagonal is
 * written as 0. A copy to its own place is possible. */
struct pack_arguments {
    void *to;
    const void *from;
    const int32_t *info;
    int64_t shape[3];
    int64_t to_strides[3], from_strides[3];
    float fill;
    int32_t lower;
};

/* Addresses of the matrices of a batch, for routines that want a list of them. */
struct addresses_arguments {
    void **to;
    char *first;
    int64_t step; /* in bytes */
    int64_t count;
};

#endif
