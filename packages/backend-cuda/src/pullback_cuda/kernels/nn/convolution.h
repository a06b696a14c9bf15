/* Convolutions of one to three dims, forward and backward. Plain C: both sides include it.
 *
 * "Image" is the input, "windows" the output of the forward convolution. All three are matrix
 * products for each group, whose factors are read in place:
 *
 *     forward          rows: output channels; columns: samples and windows;
 *                      summed over: input channels and kernel positions
 *     backward input   rows: input channels; columns: samples and image elements, for each phase of
 *                      the stride; summed over: output channels and the phase's kernel positions
 *     backward weight  rows: output channels; columns: input channels and kernel positions;
 *                      summed over: samples and windows
 */
#ifndef PULLBACK_CUDA_CONVOLUTION_H
#define PULLBACK_CUDA_CONVOLUTION_H
#include "kernels/strides/indexer.h"

#define CONV_RANK 3
#define CONV_LARGE 128 /* rows and columns of a block */
#define CONV_SMALL 64

enum conv_kind { CONV_FORWARD = 0, CONV_BACKWARD_INPUT = 1, CONV_BACKWARD_WEIGHT = 2 };

/* One dim: window i begins at i * stride - padding. */
typedef struct {
    int64_t size;  /* of the image */
    int64_t count; /* windows */
    int64_t kernel;
    int64_t stride;
    int64_t padding;
    int64_t dilation;
    int64_t common;  /* the greatest common divisor of stride and dilation */
    int64_t inverse; /* of dilation / common modulo stride / common */
    int64_t phases;  /* of the image's elements, by their remainder modulo the stride */
} conv_side;

typedef struct {
    const void *left;  /* weight; for backward weight the gradient of windows */
    const void *right; /* image; for backward input the gradient of windows */
    const void *bias;  /* of the output, or NULL */
    void *out;
    void *partial;    /* sums of each split, laid out as `out`, or NULL */
    int64_t elements; /* of out */
    int64_t images;
    int64_t groups;
    int64_t c;      /* channels of a group of the image */
    int64_t o;      /* and of windows */
    int64_t size;   /* elements of a channel of the image */
    int64_t count;  /* windows of a channel */
    int64_t kernel; /* positions in the kernel */
    int64_t row_tiles;
    int64_t column_tiles; /* of the phase with the most columns */
    int64_t splits;
    int64_t chunk;  /* summands of a split, of the phase with the most */
    int32_t kind;   /* of enum conv_kind */
    int32_t narrow; /* whether all numbers of rows, columns and summands are below 2^31 */
    conv_side sides[CONV_RANK];
    int_divider out_channels; /* of all groups; not for backward weight */
    int_divider out_rows;     /* of a group */
    int_divider out_sides[CONV_RANK];
} conv_arguments;

#endif
