/* Launch parameters of attention and its derivatives. Plain C: both sides include it. */
#ifndef PULLBACK_CUDA_ATTENTION_H
#define PULLBACK_CUDA_ATTENTION_H
#include <stdint.h>

#define ATTENTION_TILE 16  /* queries and keys of a block */
#define ATTENTION_CHUNK 64 /* elements of a row of results that a block makes */
#define ATTENTION_LEAD 4   /* leading dims, at most */

enum attention_mask { NO_MASK = 0, BOOL_MASK = 1, ADDED_MASK = 2 };

/* An operand: rows of the heads of leading dims. Strides count elements. */
typedef struct pb_heads {
    void *data;
    int64_t lead[ATTENTION_LEAD];
    int64_t row;
    int64_t step;
} pb_heads;

/* A block makes a tile of rows and a chunk of their elements. */
typedef struct pb_attention {
    pb_heads query, key, value, mask, grad, out;
    pb_heads sums; /* the logarithms of the sums of exponentials: rows of one element */
    pb_heads query_grad, key_grad, value_grad;
    int64_t lead[ATTENTION_LEAD]; /* sizes, of the query */
    int64_t heads;
    int64_t group; /* heads of the query that share one of the key */
    int64_t queries, keys;
    int64_t size, out_size; /* of a row of the key, and of the value */
    double scale;
    int32_t is_causal;
    int32_t masks;
} pb_attention;

#endif
