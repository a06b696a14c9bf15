/* How the elements of a dtype become unsigned numbers of the same size whose order is the wanted
 * one. Plain C: both sides include it. */
#ifndef PULLBACK_CUDA_SORT_KEYS_H
#define PULLBACK_CUDA_SORT_KEYS_H
#include "math/integers.h"

enum sort_kind { SORT_UNSIGNED = 0, SORT_SIGNED = 1, SORT_FLOATING = 2 };

typedef struct {
    int32_t bytes;     /* of an element */
    int32_t kind;      /* of enum sort_kind */
    uint64_t infinity; /* the bits of infinity; NaN has more, apart from the sign */
    uint64_t flip;     /* all bits of an element for the descending order, else none */
} sort_keys;

#endif
