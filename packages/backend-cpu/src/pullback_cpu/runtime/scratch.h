/* Memory that kernels work in. Blocks are kept for the next call: the system takes large ones back
 * when they are freed, and giving out their pages anew costs as much as many a product. */
#ifndef PULLBACK_CPU_SCRATCH_H
#define PULLBACK_CPU_SCRATCH_H
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "runtime/huge_pages.h"

#define PB_SCRATCH_KEPT 4            /* blocks that are kept */
#define PB_SCRATCH_LARGEST (1 << 22) /* bytes of a block that is kept */
/* In front of a block stands its size; and it begins with a cache line, or every other vector of
 * 512 bits would lie in two. */
#define PB_SCRATCH_HEAD 64
#if defined(_WIN32)
#define pb_scratch_new(bytes) malloc(bytes)
#else
#define pb_scratch_new(bytes) aligned_alloc(PB_SCRATCH_HEAD, bytes)
#endif

#if defined(__GNUC__)
static void *pb_scratch_blocks[PB_SCRATCH_KEPT];
#define pb_scratch_swap(place, block) __atomic_exchange_n(place, block, __ATOMIC_ACQ_REL)
#endif

/* Return memory for so many bytes, or NULL. Any thread may ask. */
static void *pb_scratch_take(size_t bytes) {
    size_t size = 4096;
    char *block;
    if (bytes > SIZE_MAX / 4)
        return NULL;
    while (size < bytes && size < PB_SCRATCH_LARGEST)
        size *= 2;
    if (size < bytes)
        size = (bytes + 4095) & ~(size_t)4095;
#if defined(__GNUC__)
    for (int i = 0; i < PB_SCRATCH_KEPT; i++) {
        if (pb_scratch_blocks[i] == NULL)
            continue;
        block = pb_scratch_swap(&pb_scratch_blocks[i], NULL);
        if (block != NULL && *(size_t *)block >= size && *(size_t *)block <= 4 * size)
            return block + PB_SCRATCH_HEAD;
        if (block != NULL)
            block = pb_scratch_swap(&pb_scratch_blocks[i], block);
        free(block);
    }
#endif
    block = pb_scratch_new(size + PB_SCRATCH_HEAD);
    if (block == NULL)
        return NULL;
    pb_advise_huge(block, size);
    *(size_t *)block = size;
    return block + PB_SCRATCH_HEAD;
}

/* Give memory back; NULL is fine. */
static void pb_scratch_give(void *data) {
    void *block = data == NULL ? NULL : (char *)data - PB_SCRATCH_HEAD;
#if defined(__GNUC__)
    if (block != NULL && *(size_t *)block <= PB_SCRATCH_LARGEST)
        for (int i = 0; i < PB_SCRATCH_KEPT && block != NULL; i++)
            if (pb_scratch_blocks[i] == NULL)
                block = pb_scratch_swap(&pb_scratch_blocks[i], block);
#endif
    free(block);
}

#endif
