/* Launch parameters of kernels that copy transposed arrays. */
#ifndef PULLBACK_CUDA_COPY_H
#define PULLBACK_CUDA_COPY_H
#include "math/integers.h"

#define COPY_TILES_DIMS 10
/* Rows and columns that a block copies, by the size of an element. */
#define COPY_TILE(bytes) ((bytes) == 8 ? 32 : 64)

typedef struct {
    void *out;
    const void *in;
    int64_t out_stride; /* from row to row, in bytes; columns are contiguous */
    int64_t in_stride;  /* from column to column; rows are contiguous */
    uint32_t rows;
    uint32_t columns;
    uint32_t row_tiles;
    uint32_t column_tiles;
    int32_t ndim; /* further dims */
    uint32_t size[COPY_TILES_DIMS];
    int64_t out_strides[COPY_TILES_DIMS];
    int64_t in_strides[COPY_TILES_DIMS];
} copy_tiles_arguments;

#endif
