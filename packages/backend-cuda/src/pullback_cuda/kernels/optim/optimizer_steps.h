/* Launch parameters of the steps of optimizers. Plain C: both sides include it. */
#ifndef PULLBACK_CUDA_OPTIMIZER_STEPS_H
#define PULLBACK_CUDA_OPTIMIZER_STEPS_H
#include <stdint.h>

#define OPTIM_TENSORS 34 /* in each list of a launch */
#define OPTIM_WRITTEN 4  /* lists that are written */
#define OPTIM_POINTERS 68
#define OPTIM_CHUNK 4096 /* elements of a block */

enum optim_flags {
    OPTIM_MAXIMIZE = 1,
    OPTIM_DECAYS = 2, /* the gradient gets a multiple of the parameter */
    OPTIM_STARTS = 4, /* buffers are not read */
    OPTIM_NESTEROV = 8,
    OPTIM_BUFFERED = 16,
    OPTIM_CENTERED = 32,
    OPTIM_AMSGRAD = 64,
    OPTIM_RATES = 128 /* rates follow from steps on the device */
};

typedef struct pb_optim {
    void *data[OPTIM_POINTERS]; /* the written lists, then the gradients */
    int64_t sizes[OPTIM_TENSORS];
    int64_t first_blocks[OPTIM_TENSORS]; /* of each tensor */
    const void *steps[OPTIM_TENSORS];    /* NULL: a rate and a root are given */
    double rates[OPTIM_TENSORS];
    double roots[OPTIM_TENSORS]; /* what the root of the squares is multiplied by */
    const float *found_inf;      /* NULL, or a flag: nothing is written if it is not 0 */
    double lr;
    double decay;
    double keep; /* a factor of the parameter */
    double first;
    double second;
    double rest;
    double eps;
    double momentum;
    double beta1;
    double lr_decay;
    int32_t count;
    int32_t written; /* lists */
    int32_t type;    /* a pb_dtype */
    int32_t step_type;
    int32_t flags;
} pb_optim;

#endif
