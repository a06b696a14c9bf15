/* Launch parameters of arange and linspace. */
#ifndef PULLBACK_CUDA_CREATE_H
#define PULLBACK_CUDA_CREATE_H
#include "math/integers.h"

#define CREATE_THREADS 256
#define CREATE_EACH 4 /* numbers of a thread */

typedef struct {
    void *data;
    int64_t stride; /* in bytes */
    int64_t count;
    int64_t half;  /* numbers before it are computed from the start, the others from the end */
    int64_t first; /* of integers */
    int64_t step;
    double start;
    double end;
    double width;
    int32_t type; /* a pb_dtype */
} create_arguments;

#endif
