/* Launch parameters of LDL decompositions. Strides count elements. */
#ifndef PULLBACK_CUDA_LDL_H
#define PULLBACK_CUDA_LDL_H
#include "math/integers.h"

/* matrices hold lower triangles with zeros above, which become L and D. */
struct ldl_factor_arguments {
    void *matrices;
    int32_t *pivots;
    int32_t *info;
    int64_t batch, n;
    int64_t strides[3], pivot_strides[2], info_stride;
    int32_t hermitian;
};

/* x holds the right sides, which become the solutions. */
struct ldl_solve_arguments {
    const void *matrices;
    const int32_t *pivots;
    void *x;
    void *failure;
    int64_t batch, n, columns;
    int64_t strides[3], pivot_strides[2], x_strides[3];
    int32_t hermitian;
};

#endif
