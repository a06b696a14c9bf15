/* What the kernels that scan lines are told. Plain C: both sides include it.
 *
 * The lanes of a line are neighbouring threads, each with a few neighbouring elements. Long lines
 * are cut into chunks: first the totals of all chunks are found, then those of all chunks before
 * each, and then the chunks are scanned. */
#ifndef PULLBACK_CUDA_SCAN_H
#define PULLBACK_CUDA_SCAN_H
#include "kernels/strides/coalesced_dims.h"

#define SCAN_AXES 8

enum scan_phase { SCAN_LINES = 0, SCAN_FINDS_TOTALS = 1, SCAN_OF_TOTALS = 2, SCAN_CHUNKS = 3 };

/* Blocks: x has groups of lines, as many as there are slots; y has chunks. */
typedef struct pb_scan {
    const void *in;
    void *out;
    void *places;  /* the second output of running extremes */
    void *partial; /* an accumulator of every line and chunk */
    int64_t lines; /* below 2^31 */
    int64_t length;
    int64_t chunk; /* elements of a line that a block scans */
    int64_t chunks;
    int64_t strides[3]; /* along lines, of the input, the output and the places */
    uint64_t mask;      /* bits of elements that are flipped */
    int32_t phase;
    int32_t packed; /* not 0: input and output are moved in packs */
    int32_t lanes;  /* threads of a line, as a power of two */
    int32_t slots;  /* likewise lines of a block */
    int32_t axes;   /* at least one */
    pb_axis line[SCAN_AXES];
} pb_scan;

#endif
