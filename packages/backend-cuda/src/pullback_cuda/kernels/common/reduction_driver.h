/* Launch parameters of reduction kernels. Plain C: both sides include it.
 *
 * A unit is one output, or a vector of neighbouring outputs. A group of threads of a block shares a
 * unit: neighbouring threads, or, where elements of different outputs are closer in memory than
 * those of one, threads as far apart as the block has groups. A position is one element of each
 * output of a unit, or a vector of them. A chunk is the positions that one block reduces. */
#ifndef PULLBACK_CUDA_REDUCTION_DRIVER_H
#define PULLBACK_CUDA_REDUCTION_DRIVER_H
#include "kernels/strides/coalesced_dims.h"

#define REDUCTION_DIMS 8 /* of each kind */

enum reduction_loads {
    LOADS_ELEMENTS = 0,
    LOADS_VECTORS_OF_REDUCED = 1, /* 16 bytes of neighbours of one output */
    LOADS_VECTORS_OF_KEPT = 2     /* 16 bytes of neighbours of different outputs */
};

enum reduction_truth { TRUTH_COUNT = 0, TRUTH_ANY = 1, TRUTH_ALL = 2 };

/* Blocks: along x units, one for each group of the block; along y chunks. */
typedef struct pb_reduction {
    const void *in;
    void *out;
    void *second;         /* the second output, laid out as the first one */
    void *partial;        /* an accumulator of every output and chunk; NULL: there is one chunk */
    int64_t units;        /* below 2^31 */
    int64_t length;       /* positions of a unit; with more than one dim below 2^31 */
    int64_t chunk;        /* positions of a chunk, below 2^31 */
    int64_t first_chunk;  /* the number of this launch's first one */
    int64_t first_number; /* of this launch's first element among those of its output */
    int64_t total;        /* elements of an output in all */
    int64_t apart;        /* elements between neighbouring outputs of a unit */
    uint64_t mask;        /* bits of an element that are flipped, or that are tested */
    int32_t truth;        /* what the count of elements that are not 0 is for */
    int32_t squares;      /* not 0: of the elements of a special sum */
    int32_t merges;       /* not 0: partial is merged; a unit is an output, a position a chunk */
    int32_t loads;
    int32_t tail;                   /* elements after the last whole vector of the reduced ones */
    int32_t unit_bits;              /* the outputs of a unit are 2 to the power of this */
    int32_t thread_bits;            /* likewise the threads of a group */
    int32_t group_bits;             /* likewise the groups of a block */
    int32_t strided;                /* not 0: the threads of a group are apart */
    int32_t kept_ndim;              /* at least one */
    int32_t reduced_ndim;           /* at least one */
    pb_dim kept[REDUCTION_DIMS];    /* strides: input, output */
    pb_dim reduced[REDUCTION_DIMS]; /* strides: input */
} pb_reduction;

#endif
