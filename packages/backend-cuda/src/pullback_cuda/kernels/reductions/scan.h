/* Launch parameters of kernels that scan lines. Plain C: both sides include it.
 *
 * A group of neighbouring threads scans a line, each thread a few neighbouring elements. Long lines
 * are split into chunks: the first launch computes the totals of chunks, the second their exclusive
 * scan, and the third scans the chunks. */
#ifndef PULLBACK_CUDA_SCAN_H
#define PULLBACK_CUDA_SCAN_H
#include "kernels/strides/coalesced_dims.h"

#define SCAN_DIMS 8

enum scan_phase { SCAN_LINES = 0, SCAN_FINDS_TOTALS = 1, SCAN_OF_TOTALS = 2, SCAN_CHUNKS = 3 };

/* Blocks: along x lines, one for each group of the block; along y chunks. */
typedef struct pb_scan {
    const void *in;
    void *out;
    void *indices; /* the second output of cummax and cummin */
    void *partial; /* an accumulator of every line and chunk */
    int64_t lines; /* below 2^31 */
    int64_t length;
    int64_t chunk; /* elements of a line that a block scans */
    int64_t chunks;
    int64_t strides[3]; /* along lines, of the input, the output and the indices */
    uint64_t mask;      /* bits of elements that are flipped */
    int32_t phase;
    int32_t vectorized;  /* not 0: input and output are moved in vectors */
    int32_t thread_bits; /* threads of a line, as a power of two */
    int32_t group_bits;  /* likewise lines of a block */
    int32_t ndim;        /* at least one */
    pb_dim line[SCAN_DIMS];
} pb_scan;

#endif
