/* Launch parameters of softmax, log_softmax, logsumexp and their derivatives. Plain C: both sides
 * include it.
 *
 * A group of threads keeps a line in registers, and reads elements that did not fit a second time.
 * Where there are too few lines for all multiprocessors, they are split into chunks: the first
 * launch finds the partial results of chunks, the second one writes. */
#ifndef PULLBACK_CUDA_SOFTMAX_H
#define PULLBACK_CUDA_SOFTMAX_H
#include "kernels/strides/coalesced_dims.h"

#define SOFTMAX_DIMS 8

enum softmax_phase { LINES_WHOLE = 0, LINES_FIND = 1, LINES_WRITE = 2 };
enum softmax_result { RESULT_SOFTMAX = 0, RESULT_LOG_SOFTMAX = 1, RESULT_LOGSUMEXP = 2 };

/* Blocks: along x lines, one for each group of the block; along y chunks. Operands: the output,
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
    int32_t vectorized;  /* not 0: elements are moved in vectors of 16 bytes */
    int32_t thread_bits; /* threads of a line, as a power of two */
    int32_t group_bits;  /* likewise lines of a block */
    int32_t strided;     /* not 0: the threads of a group are apart, see group.cuh */
    int32_t ndim;        /* at least one */
    pb_dim line[SOFTMAX_DIMS];
} pb_softmax;

#endif
