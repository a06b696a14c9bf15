/* Convolutions of one to three dims and their derivatives. Plain C: both sides include it.
 *
 * All three are matrix products for each group, whose factors are read from the operands in place:
 *
 *     conv                  rows: output channels; columns: images and windows;
 *                           summed over: input channels, and positions in the kernel
 *     conv_backward_input   rows: channels of the image; columns: images and their elements, for
 *                           each phase of the stride; summed over: channels of windows, and the
 *                           phase's kernel positions
 *     conv_backward_weight  rows: channels of windows; columns: channels of the image and kernel
 *                           positions; summed over: images and windows
 */
#ifndef PULLBACK_CUDA_CONVOLUTION_H
#define PULLBACK_CUDA_CONVOLUTION_H
#include "kernels/strides/indexer.h"

#define CONV_RANK 3
#define CONV_LARGE 128 /* rows and columns of a block */
#define CONV_SMALL 64

enum conv_kind { CONV_FORWARD = 0, CONV_ADJOINT = 1, CONV_WEIGHT = 2 };

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
    const void *left;  /* weight, or for conv_backward_weight windows */
    const void *right; /* image, or for conv_backward_input windows */
    const void *bias;  /* of what comes out, or NULL */
    void *out;
    void *partial;    /* sums of each split, laid out as `out`, or NULL */
    int64_t elements; /* of out */
    int64_t images;
    int64_t groups;
    int64_t c;      /* channels of a group of the image */
    int64_t o;      /* and of windows */
    int64_t size;   /* elements of a channel of the image */
    int64_t count;  /* windows of a channel */
    int64_t kernel; /* places in the kernel */
    int64_t row_tiles;
    int64_t column_tiles; /* of the phase with the most columns */
    int64_t splits;
    int64_t chunk;  /* summands of a split, of the phase with the most */
    int32_t kind;   /* of enum conv_kind */
    int32_t narrow; /* whether all numbers of rows, columns and summands are below 2^31 */
    conv_side sides[CONV_RANK];
    place_divider out_channels; /* of all groups, for conv and conv_backward_input */
    place_divider out_rows;     /* of a group */
    place_divider out_sides[CONV_RANK];
} conv_arguments;

#endif
