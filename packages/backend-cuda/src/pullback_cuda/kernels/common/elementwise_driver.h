/* Launch parameters of elementwise kernels. A vector is contiguous elements that are loaded and
 * stored together, a power of two of them that depends on the kernel's class of types.
 * Offsets are in bytes and fit into 32 bits: the host cuts larger calls into several. */
#ifndef PULLBACK_CUDA_ELEMENTWISE_DRIVER_H
#define PULLBACK_CUDA_ELEMENTWISE_DRIVER_H
#include "math/integers.h"

#define ELEMENTWISE_DIMS 12
#define ELEMENTWISE_INPUTS 4
#define ELEMENTWISE_OPERANDS 5
#define ELEMENTWISE_THREADS 256

typedef struct {
    void *data[ELEMENTWISE_OPERANDS];       /* the output, then the inputs */
    uint64_t scalar[ELEMENTWISE_INPUTS][2]; /* the inputs that are host scalars, as computed with */
    void *failure;
    int32_t in_type; /* a pb_dtype: that of the inputs */
    int32_t out_type;
    int32_t option;   /* its meaning depends on the kernel */
    uint32_t scalars; /* bit k: input k is a host scalar */
    uint32_t same;    /* bit k: input k has the same element for a whole vector */
    uint32_t count;   /* of elements */
    uint32_t vectors; /* the elements after them come one by one */
    uint32_t vector_blocks;
    /* Dim 0 is the fastest; sizes and strides are those of vectors, if there are any. A number i is
     * divided by size with multiplier and shift, as find_divider of arrays.pxd prepares them. */
    int32_t ndim;
    uint32_t size[ELEMENTWISE_DIMS];
    uint32_t multiplier[ELEMENTWISE_DIMS];
    uint32_t shift[ELEMENTWISE_DIMS];
    int32_t stride[ELEMENTWISE_DIMS][ELEMENTWISE_OPERANDS];
} elementwise_arguments;

#endif
