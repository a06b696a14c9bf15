/* What the kernels of softmax, its relatives and their derivatives are told. Plain C: both sides
 * include it.
 *
 * The lanes of a line keep its elements in registers, or read those again that did not fit into
 * them. Where lines are too few for all processors they are cut into chunks: one launch finds what
 * the chunks contribute, the next one writes. */
#ifndef PULLBACK_CUDA_SOFTMAX_H
#define PULLBACK_CUDA_SOFTMAX_H
#include "kernels/strides/coalesced_dims.h"

#define SOFTMAX_AXES 8

enum softmax_phase { LINES_WHOLE = 0, LINES_FIND = 1, LINES_WRITE = 2 };
enum softmax_result { RESULT_SOFTMAX = 0, RESULT_LOG_SOFTMAX = 1, RESULT_LOGSUMEXP = 2 };

/* Blocks: x has groups of lines, as many as there are slots; y has chunks. Operands: the output,
 * then the inputs. */
typedef struct pb_softmax {
    void *data[3];
    void *partial; /* what every chunk of every line contributes */
    int64_t lines; /* below 2^31 */
    int64_t length;
    int64_t chunk; /* elements of a line that a block has, below 2^31 */
    int64_t chunks;
    int64_t strides[3]; /* along lines */
    int32_t phase;
    int32_t result;
    int32_t packed;  /* not 0: elements are moved in packs of 16 bytes */
    int32_t lanes;   /* threads of a line, as a power of two */
    int32_t slots;   /* likewise lines of a block */
    int32_t strided; /* not 0: the lanes of a line are as far apart as there are slots */
    int32_t axes;    /* at least one */
    pb_axis line[SOFTMAX_AXES];
} pb_softmax;

#endif
