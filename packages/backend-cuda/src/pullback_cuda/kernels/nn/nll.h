/* Launch parameters of the negative log likelihood of classes. Plain C: both sides include it. */
#ifndef PULLBACK_CUDA_NLL_H
#define PULLBACK_CUDA_NLL_H
#include "kernels/strides/coalesced_dims.h"

enum nll_reduction { NLL_EACH = 0, NLL_MEAN = 1, NLL_SUM = 2 };

/* Elements (outer, classes, inner) and targets (outer, inner), contiguous. */
typedef struct pb_nll {
    const void *source; /* elements, or the gradient; NULL: only weights are added up */
    const void *targets;
    const void *weights; /* by class; NULL for ones */
    void *out;
    void *partial; /* a pair of sums of every block: of losses, and of weights */
    void *total;   /* such a pair; NULL: the reduction is written to out */
    void *failure;
    int64_t count;  /* of targets; of elements where these are written */
    int64_t blocks; /* pairs in partial */
    int64_t ignored;
    pb_dim inner;
    pb_dim classes; /* only the size */
    int32_t reduction;
    int32_t vectorized; /* not 0: elements are written in vectors of 16 bytes */
} pb_nll;

#endif
