/* What the kernels that reduce are told. Plain C: both sides include it.
 *
 * A unit is one output, or a pack of neighbouring outputs. The lanes of a unit are the threads of a
 * block that share it: threads side by side, or, where the elements of different outputs lie closer
 * together than those of one, threads that are as far apart as the block has slots for units. A
 * position is an element, or a pack of neighbouring elements, that every output of a unit takes in.
 * A chunk is as many positions as one block takes in. */
#ifndef PULLBACK_CUDA_REDUCTION_H
#define PULLBACK_CUDA_REDUCTION_H
#include "kernels/strides/coalesced_dims.h"

#define REDUCTION_AXES 8 /* of each kind */

enum reduction_loads {
    LOADS_ELEMENTS = 0,
    LOADS_PACKS_OF_REDUCED = 1, /* 16 bytes of neighbours that meet in one output */
    LOADS_PACKS_OF_KEPT = 2     /* 16 bytes of neighbours of different outputs */
};

enum reduction_truth { TRUTH_COUNT = 0, TRUTH_ANY = 1, TRUTH_ALL = 2 };

/* Blocks: x has groups of units, as many as there are slots; y has chunks. */
typedef struct pb_reduction {
    const void *in;
    void *out;
    void *second;         /* the second output, laid out as the first one */
    void *partial;        /* an accumulator of every output and chunk; NULL: there is one chunk */
    int64_t units;        /* below 2^31 */
    int64_t length;       /* positions of a unit; with more than one axis below 2^31 */
    int64_t chunk;        /* positions of a chunk, below 2^31 */
    int64_t first_chunk;  /* the number of this launch's first one */
    int64_t first_number; /* of this launch's first element among those of its output */
    int64_t total;        /* elements of an output in all */
    int64_t apart;        /* elements from an output of a unit to the next */
    uint64_t mask;        /* bits of an element that are flipped, or that are looked at */
    int32_t truth;        /* what the count of elements that are not 0 is for */
    int32_t squares;      /* not 0: of the elements of a special sum */
    int32_t merges;       /* not 0: partial is merged; a unit is an output, a position a chunk */
    int32_t loads;
    int32_t tail;                 /* elements after the last whole pack of the reduced ones */
    int32_t packed;               /* the outputs of a unit are 2 to the power of this */
    int32_t lanes;                /* likewise the lanes of a unit */
    int32_t slots;                /* likewise the units of a block, of 2^(lanes + slots) threads */
    int32_t strided;              /* not 0: the lanes of a unit are apart */
    int32_t kept_axes;            /* at least one */
    int32_t reduced_axes;         /* at least one */
    pb_axis kept[REDUCTION_AXES]; /* strides: input, output */
    pb_axis reduced[REDUCTION_AXES]; /* strides: input */
} pb_reduction;

#endif
