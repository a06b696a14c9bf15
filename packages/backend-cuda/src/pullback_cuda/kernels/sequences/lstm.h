/* Launch parameters of the steps of a layer of long short-term memory. Plain C: both sides include
 * it. */
#ifndef PULLBACK_CUDA_LSTM_H
#define PULLBACK_CUDA_LSTM_H
#include <stdint.h>

/* A block takes rows of the batch through all steps. Arrays are contiguous; a row of the gates has
 * i, f, g, o and the cell. */
typedef struct pb_lstm {
    const void *given; /* the part of the gates that comes from the input */
    const void *weight;
    const void *hidden;
    const void *cell;
    const void *grad;      /* of the states */
    const void *cell_grad; /* of the last cell */
    void *out;
    void *last_cell;
    void *gates;
    void *given_grad;
    void *hidden_grad;
    void *first_grad; /* of the first cell */
    int64_t steps, rows, size;
    int64_t reverse;
} pb_lstm;

#endif
